"""Writes enriched records: `EnrichedRecord` -> bytes (`schemas/enriched-record.v1.schema.json`).

Only the value: `headers` makes the headers, and `encoder` handles records that are too large.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, overload

import orjson

from enricher.records import Entity, hot_record

if TYPE_CHECKING:
    from enricher.records import Article, EnrichedRecord, ModelCard

SCHEMA_VERSION = 1


@hot_record(eq=False)
class WrittenEntities(Sequence[Entity]):
    """Entities as the JSON of their record; parsed again when accessed.

    While finished records wait for their transaction, bytes take less memory, and the garbage collector, which stops all
    threads, visits one object instead of hundreds.
    """

    json: bytes
    length: int

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Entity]:
        return iter(orjson.loads(self.json))

    @overload
    def __getitem__(self, index: int) -> Entity: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Entity]: ...
    def __getitem__(self, index: int | slice) -> Entity | Sequence[Entity]:
        return list(self)[index]


def write_entities(article: Article, entities: Sequence[Entity]) -> WrittenEntities:
    """Serialise the entities of `article`; cheapest right after decoding, while they are in the processor's caches."""
    return WrittenEntities(orjson.dumps(_checked(article, entities)), len(entities))


def encode_record(record: EnrichedRecord, card: ModelCard) -> bytes:
    """The record as one compact JSON object in UTF-8. Deterministic."""
    article, coverage, entities = record.article, record.coverage, record.entities
    written = orjson.Fragment(entities.json) if isinstance(entities, WrittenEntities) else _checked(article, entities)
    return orjson.dumps(
        {
            "schema_version": SCHEMA_VERSION,
            "id": article.id,
            **article.metadata,
            "entities": written,
            "model": {"name": card.name, "digest": card.digest, "precision": card.precision},
            "coverage": {"tokens": coverage.tokens, "windows": coverage.windows, "truncated": coverage.truncated},
        }
    )


def _checked(article: Article, entities: Sequence[Entity]) -> Sequence[Entity]:
    """Check each entity and return them all. Every entity passes here once before it is serialised."""
    texts = {"title": article.title, "body": article.body}
    for entity in entities:
        start, end, text = entity["start"], entity["end"], entity["text"]
        assert 0 <= start < end, "an entity has at least one character"
        assert texts[entity["field"]][start:end] == text, "offsets count in the original text of their field"
        assert 0.0 <= entity["score"] <= 1.0, "a score is a probability, never NaN"
    return entities
