"""Records that the codec's tests share."""

from __future__ import annotations

import pytest
from support.reasons import every_refusal_has_a_reason
from support.records import plain_record

from enricher.worker.records import Article, Coverage, EnrichedRecord, Entity, Partition, RawRecord

__all__ = ["every_refusal_has_a_reason"]


@pytest.fixture
def raw() -> RawRecord:
    """Make an input record with headers as unpleasant as Kafka allows: a double, an empty one, one that is not text."""
    headers = (("traceparent", b"00-1"), ("x", b"\xff\x00"), ("x", None), ("x", b""))
    return RawRecord(
        Partition("articles", 3), 1042, b"key-1", b'{"id": "a-1"}', headers, topic_id="kz7-Q2mNTXS0b_1d0wY3sA"
    )


@pytest.fixture
def record() -> EnrichedRecord:
    """Make a record with an entity in each field, behind a character that takes two UTF-16 units."""
    article = Article("a-1", "\U0001f68b Oslo", "Kari Nordmann i Tromsø", {"language": "nb"})
    entities = (
        Entity(field="title", start=2, end=6, text="Oslo", label="LOC", score=0.9988),
        Entity(field="body", start=16, end=22, text="Tromsø", label="LOC", score=1.0),
    )
    return plain_record(article, entities, Coverage(tokens=9, windows=1, truncated=False))
