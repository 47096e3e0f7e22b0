"""Writes enriched records: `EnrichedRecord` -> bytes (`schemas/enriched-record.v1.schema.json`).

Only the value: keys and headers are in `headers`, and what to do with a record that is too large is in `encoder`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from enricher.records import Article, EnrichedRecord, Entity, ModelCard

SCHEMA_VERSION = 1

_SCORE_DECIMALS = 4
"""More would be noise: precisions and devices differ from the fourth decimal on."""


def encode_record(record: EnrichedRecord, card: ModelCard) -> bytes:
    """One compact JSON object in UTF-8. The same record always gives the same bytes."""
    article, coverage = record.article, record.coverage
    return orjson.dumps(
        {
            "schema_version": SCHEMA_VERSION,
            "id": article.id,
            **article.metadata,
            "entities": [_entity(article, entity) for entity in record.entities],
            "model": {"name": card.name, "digest": card.digest, "precision": card.precision},
            "coverage": {"tokens": coverage.tokens, "windows": coverage.windows, "truncated": coverage.truncated},
        }
    )


def _entity(article: Article, entity: Entity) -> dict[str, Any]:
    start, end = entity.start, entity.end
    score = round(float(entity.score), _SCORE_DECIMALS)
    assert 0 <= start < end, "an entity has at least one character"
    assert article.text(entity.field)[start:end] == entity.text, "offsets count in the original text of their field"
    assert 0.0 <= score <= 1.0, "a score is a probability (NaN never gets here)"
    return {
        "field": entity.field,
        "start": start,
        "end": end,
        "text": entity.text,
        "label": entity.label,
        "score": score,
    }
