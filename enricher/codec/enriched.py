"""Writes enriched records: `EnrichedRecord` -> bytes (`schemas/enriched-record.v1.schema.json`).

Only the value: keys and headers are in `headers`, and what to do with a record that is too large is in `encoder`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from enricher.records import EnrichedRecord, Entity, ModelCard

SCHEMA_VERSION = 1

_SCORE_STEPS = 10_000
"""Scores are written to the fourth decimal. More would be noise: precisions and devices differ from there on."""
_MAX_SCORE = 1 + 0.5 / _SCORE_STEPS
"""What is still written as 1: a probability that was computed in float16 may be a little above."""


def encode_record(record: EnrichedRecord, card: ModelCard) -> bytes:
    """One compact JSON object in UTF-8. The same record always gives the same bytes."""
    article, coverage = record.article, record.coverage
    return orjson.dumps(
        {
            "schema_version": SCHEMA_VERSION,
            "id": article.id,
            **article.metadata,
            "entities": [_entity(entity, article.text(entity.field)) for entity in record.entities],
            "model": {"name": card.name, "digest": card.digest, "precision": card.precision},
            "coverage": {"tokens": coverage.tokens, "windows": coverage.windows, "truncated": coverage.truncated},
        }
    )


def _entity(entity: Entity, field_text: str) -> dict[str, Any]:
    start, end, text, score = entity.start, entity.end, entity.text, float(entity.score)
    assert 0 <= start < end, "an entity has at least one character"
    assert field_text[start:end] == text, "offsets count in the original text of their field"
    assert 0.0 <= score <= _MAX_SCORE, "a score is a probability (NaN never gets here)"
    return {
        "field": entity.field,
        "start": start,
        "end": end,
        "text": text,
        "label": entity.label,
        # A whole number of steps: `round` to decimals goes by way of a string, and takes five times as long.
        "score": round(score * _SCORE_STEPS) / _SCORE_STEPS,
    }
