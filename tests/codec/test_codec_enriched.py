"""`encode_record`: the very bytes, and the mistakes of ours that it must not write."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enricher.codec import encode_record, write_entities
from enricher.records import Article, Coverage, EnrichedRecord, Entity, ModelCard


def with_entity(record: EnrichedRecord, changes: dict[str, Any]) -> EnrichedRecord:
    """Copy `record` with its first entity changed."""
    changed: Any = {**record.entities[0], **changes}
    return replace(record, entities=(changed,))


def test_record_has_these_bytes(record: EnrichedRecord, card: ModelCard) -> None:
    """The form is a contract, so the bytes are written out here."""
    expected = (
        '{"schema_version":1,"id":"a-1","language":"nb","entities":['
        '{"field":"title","start":2,"end":6,"text":"Oslo","label":"LOC","score":0.9988},'
        '{"field":"body","start":16,"end":22,"text":"Tromsø","label":"LOC","score":1.0}],'
        '"model":{"name":"newswire-minilm","digest":"sha256:6a1f0c","precision":"int8"},'
        '"coverage":{"tokens":9,"windows":1,"truncated":false}}'
    )
    assert expected.encode() == encode_record(record, card)


def test_entities_written_beforehand_make_the_same_record(record: EnrichedRecord, card: ModelCard) -> None:
    """Byte by byte: when the entities were written is nobody's business."""
    written = replace(record, entities=write_entities(record.article, record.entities))
    assert encode_record(record, card) == encode_record(written, card)
    assert encode_record(replace(record, entities=()), card) == encode_record(
        replace(record, entities=write_entities(record.article, ())), card
    )


def test_written_entities_can_be_read_back(record: EnrichedRecord) -> None:
    """They are the same sequence of entities as before."""
    first, second = record.entities
    written = write_entities(record.article, record.entities)
    assert [first, second] == list(written)
    assert (2, second, [second]) == (len(written), written[1], written[1:])


@pytest.mark.parametrize(
    "changes",
    [
        {"start": 3},
        {"end": 5},
        {"field": "body"},
        {"text": "oslo"},
        {"start": 3, "end": 7},
        {"start": 2, "end": 2, "text": ""},
        {"start": -4, "end": 6},
        {"score": 1.0001},
        {"score": -0.1},
        {"score": float("nan")},
    ],
)
def test_entity_that_is_not_in_its_text_is_a_bug(
    record: EnrichedRecord, card: ModelCard, changes: dict[str, Any]
) -> None:
    """An offset that is wrong by one, or a score that is no probability, stops the worker before it is written."""
    wrong = with_entity(record, changes)
    with pytest.raises(AssertionError):
        encode_record(wrong, card)
    with pytest.raises(AssertionError):
        write_entities(wrong.article, wrong.entities)


@given(text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1), data=st.data())
def test_any_span_of_any_text_can_be_written_and_read_back(text: str, data: st.DataObject) -> None:
    """Offsets are code points, whatever the text holds: control characters, emoji, combining marks."""
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    score = data.draw(st.floats(0, 1))
    entity = Entity(field="body", start=start, end=end, text=text[start:end], label="MISC", score=score)
    record = EnrichedRecord(Article("a-1", "", text), (entity,), Coverage(tokens=1, windows=1, truncated=False))
    read = orjson.loads(encode_record(record, ModelCard("m", "d", "fp32")))["entities"][0]
    assert text[read["start"] : read["end"]] == read["text"]
