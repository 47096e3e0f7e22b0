"""`encode_record`: the very bytes, and the mistakes of ours that it must not write."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import any_text
from support.records import plain_record

from enricher.worker.articles import as_line, encode_record, without_repeats, write_entities
from enricher.worker.records import Article, Coverage, EnrichedRecord, Entity


def test_entities_written_beforehand_make_the_same_record(record: EnrichedRecord) -> None:
    """Byte by byte, and they are the same sequence of entities as before."""
    first, second = record.entities
    written = write_entities(record.article, record.entities)
    assert encode_record(record) == encode_record(replace(record, entities=written))
    assert [first, second] == list(written)
    assert (2, second, [second]) == (len(written), written[1], written[1:])
    none = replace(record, entities=())
    assert encode_record(none) == encode_record(replace(none, entities=write_entities(record.article, ())))


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
def test_entity_that_is_not_in_its_text_is_a_bug(record: EnrichedRecord, changes: dict[str, Any]) -> None:
    """An offset that is wrong by one, or a score that is no probability, stops the worker before it is written."""
    changed: Any = {**record.entities[0], **changes}
    wrong = replace(record, entities=(changed,))
    with pytest.raises(AssertionError):
        encode_record(wrong)
    with pytest.raises(AssertionError):
        write_entities(wrong.article, wrong.entities)


@given(text=any_text(min_size=1), data=st.data())
def test_any_span_of_any_text_can_be_written_and_read_back(text: str, data: st.DataObject) -> None:
    """Offsets are code points, whatever the text holds: control characters, emoji, combining marks."""
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    score = data.draw(st.floats(0, 1))
    entity = Entity(field="body", start=start, end=end, text=text[start:end], label="MISC", score=score)
    record = plain_record(Article("a-1", "", text), (entity,), Coverage(tokens=1, windows=1, truncated=False))
    read = orjson.loads(encode_record(record))["entities"][0]
    assert text[read["start"] : read["end"]] == read["text"]


# Written by the version before there was a choice of what a record repeats.
STORED = (
    '{"schema_version":1,"id":"a-7 \\"q\\"","language":"nb","source":"NTB","url":"https://example.org/?q=ø",'
    '"published_at":"2026-03-14T10:00:00+01:00","entities":[{"field":"body","start":4,"end":8,"text":"Kari","label":"PER",'
    '"score":0.5}],"model":{"name":"newswire-minilm","digest":"sha256:6a1f0c","precision":"int8"},'
    '"coverage":{"tokens":12,"windows":2,"truncated":true}}'
)
METADATA = {
    "language": "nb",
    "source": "NTB",
    "url": "https://example.org/?q=ø",
    "published_at": "2026-03-14T10:00:00+01:00",
}


def stored_record() -> EnrichedRecord:
    """The record whose bytes are stored."""
    article = Article('a-7 "q"', "Überschrift \u2028 \U0001f68b", "Tab\tKari i Tromsø", METADATA)
    entity = Entity(field="body", start=4, end=8, text="Kari", label="PER", score=0.5)
    return plain_record(article, (entity,), Coverage(tokens=12, windows=2, truncated=True))


def with_article(record: EnrichedRecord, **changes: object) -> EnrichedRecord:
    """Copy `record` with its article changed."""
    return replace(record, article=replace(record.article, **changes))  # type: ignore[arg-type]  # checked at run time


def test_record_without_new_settings_is_what_it_was() -> None:
    """Byte by byte, so that nobody's comparison of records changes with an upgrade."""
    assert encode_record(stored_record()) == STORED.encode()


def test_bare_article_leaves_the_id_and_what_offsets_need() -> None:
    """The separator stays: without it, nobody could join the paragraphs that the offsets count in."""
    record = with_article(stored_record(), further=b'{"section":"news"}', body_separator="\n\n", document=b"{}")
    written = orjson.loads(encode_record(replace(record, article=without_repeats(record.article))))
    assert list(written) == ["schema_version", "id", "body_separator", "entities", "model", "coverage"]
    assert written["entities"] == list(record.entities)


def test_further_metadata_is_an_object_of_its_own() -> None:
    """Names that the setting chooses cannot collide with the record's own fields."""
    further = {"entities": ["a", None, 1.5], "section": {"name": "Økonomi"}}
    record = with_article(stored_record(), further=orjson.dumps(further), body_separator="\n", document=b"{}")
    written = orjson.loads(encode_record(record))
    assert further == written["metadata"]
    assert written["body_separator"] == "\n"
    assert list(written)[:8] == ["schema_version", "id", *METADATA, "metadata", "body_separator"]


def test_whole_article_is_its_own_bytes_behind_all_that_was_there_before() -> None:
    """Numbers, escapes, white space, doubled keys: a parser would change each. The entities are found before the text."""
    document = b' {"id":"a-1",\r\n\t"n":[1.0,1e2,-0,12345678901234567890123,0.10],"s":"\\u00e6\\/","n":2}\n'
    written = encode_record(with_article(stored_record(), document=document))
    assert STORED[:-1].encode() + b',"article":' + document + b"}" == written


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | any_text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(any_text(max_size=3), inner, max_size=3),
    max_leaves=20,
)


@given(document=json_values.map(lambda value: json.dumps({"body": value}, indent=1)), line_end=st.sampled_from("\n\r"))
def test_any_document_stays_in_one_line_of_a_file(document: str, line_end: str) -> None:
    """Line breaks between tokens become spaces; those in strings are escaped, so what it says stays the same."""
    spread = document.replace("\n", line_end).encode()
    record = plain_record(Article("1", "", "b", document=spread), (), Coverage(1, 1, truncated=False))
    line = as_line(encode_record(record))
    assert line.count(b"\n") == 1
    assert line.endswith(b"}\n")
    assert b"\r" not in line
    assert json.loads(line)["article"] == json.loads(document)
