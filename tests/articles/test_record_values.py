"""`encode_record`: the very bytes, with classes and vectors exact, and the mistakes of ours that it must not write."""

from __future__ import annotations

import json
from base64 import b64decode
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest
from articles.test_written_formats import ALL, written
from hypothesis import given
from hypothesis import strategies as st
from support.properties import any_text
from support.records import (
    HALVES,
    MODEL,
    NAMES,
    OTHER,
    SEEN,
    SIMILAR,
    TOPIC,
    encoder_of,
    finished,
    plain_record,
    record_of_tasks,
    records_of_tasks,
)

from enricher.errors import InvalidArticle
from enricher.worker.articles import (
    as_line,
    encode_record,
    serialise_findings,
    without_repeats,
    write_entities,
)
from enricher.worker.contracts import RecordFormat
from enricher.worker.heads.embedding import write_embeddings
from enricher.worker.records import (
    Article,
    Coverage,
    DeadLetter,
    Embedding,
    EnrichedRecord,
    Entity,
    ModelCard,
    Partition,
    RawRecord,
    TaskCard,
    TaskReport,
)


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


# ---- tasks


NEW = ("classifications", "embeddings", "tasks")


@given(record=records_of_tasks())
def test_vectors_are_read_back_exactly(record: EnrichedRecord) -> None:
    """A float32 to the last bit, whoever parses its text as a double; a float16 as numpy rounds to it."""
    read = orjson.loads(encode_record(record))["embeddings"]
    kept = write_embeddings(record.findings["embeddings"])
    for embedding, found, again in zip(record.findings["embeddings"], read, kept, strict=True):
        if embedding.task.vector_format == "list":
            values, wanted = np.array(found["vector"], np.float64).astype(np.float32), embedding.vector
        else:
            values = np.frombuffer(b64decode(found["vector_float16"]), "<f2")
            wanted = embedding.vector.astype(np.float16)
        assert wanted.tobytes() == values.tobytes()
        assert wanted.astype(np.float32).tobytes() == again.vector.tobytes()
        assert embedding.task is again.task
        assert len(embedding.vector) == found["dimensions"]


def test_numbers_have_the_fewest_digits() -> None:
    """Not those of the double of the same value, which are twice as many."""
    assert b'"vector":[0.12573022,-0.13210486,0.64042264,0.104900114]' in encode_record(record_of_tasks())


def test_a_record_of_tasks_has_these_fields_between_coverage_and_article() -> None:
    """Who reads records from their beginning finds everything before the text."""
    record = record_of_tasks()
    whole = replace(record, article=replace(record.article, document=b"{}"))
    fields = list(orjson.loads(encode_record(whole)))
    assert ["entities", "model", "coverage", *NEW, "article"] == fields[-7:]


@pytest.mark.parametrize(
    ("ran", "model"),
    [
        ((True, True), MODEL),
        ((False, True), OTHER),
        ((True, False), MODEL),
        ((False, False), OTHER),
    ],
)
def test_model_is_that_of_the_entities_if_a_task_found_some(ran: tuple[bool, bool], model: ModelCard) -> None:
    """Else that of the first task that ran, else of the first task."""
    reports = [
        TaskReport(card, SEEN if each else None) for card, each in zip((TOPIC, NAMES), reversed(ran), strict=True)
    ]
    record = replace(record_of_tasks(), entities=[], findings={}, tasks=reports)
    expected = {"name": model.name, "digest": model.digest, "precision": model.precision}
    assert expected == orjson.loads(encode_record(record))["model"]


@pytest.mark.parametrize(
    ("card", "value", "said"),
    [
        (HALVES, 65_520.0, "the vector of task 'halves' is beyond float16: vector=list"),
        (HALVES, -1e9, "the vector of task 'halves' is beyond float16: vector=list"),
        (SIMILAR, float("inf"), "the vector of task 'similar' is not finite"),
        (HALVES, float("nan"), "the vector of task 'halves' is not finite"),
    ],
)
@pytest.mark.parametrize("output_format", ALL)
def test_a_vector_that_cannot_be_written_is_a_dead_letter(
    output_format: RecordFormat,
    card: TaskCard,
    value: float,
    said: str,
) -> None:
    """It names the task; the record is kept as it is until then, and the largest float16 is written."""
    vector = np.array([0.5, value], np.float32)
    record = serialise_findings(replace(record_of_tasks(), findings={"embeddings": [Embedding(card, vector)]}))
    with pytest.raises(InvalidArticle) as refused:
        written(record, output_format)
    assert (said, "publish") == (str(refused.value), refused.value.stage)
    largest = np.array([65_504.0, 65_519.0], np.float32)
    halves = [Embedding(HALVES, largest)]
    (read,) = write_embeddings(halves)
    assert [65_504.0, 65_504.0] == read.vector.tolist()


def letter_of(record: EnrichedRecord, limit_bytes: int, output_format: RecordFormat) -> DeadLetter | None:
    """The output of an encoder whose records have at most this many bytes."""
    ticket = finished(RawRecord(Partition("t", 0), 0, None, b"{}", topic_id="id"), record)
    return encoder_of(output_format, max_record_bytes=limit_bytes).outgoing(ticket).letter


@pytest.mark.parametrize(("output_format", "vector_bytes"), [("json", 80_001), ("avro", 16_000), ("protobuf", 16_000)])
def test_a_record_that_vectors_make_too_large_says_so(output_format: RecordFormat, vector_bytes: int) -> None:
    """With the size of the vectors in this format, and the setting that makes them smaller, unless it is set."""
    vector = np.full(4000, 0.5, np.float32)
    vector[:] = np.float32(-1.2345678e-10)
    text = len(orjson.dumps(vector, option=orjson.OPT_SERIALIZE_NUMPY))
    size = text if output_format == "json" else vector_bytes
    large = record_of_tasks()
    large = replace(large, findings={**large.findings, "embeddings": [Embedding(SIMILAR, vector)]})
    for record in (large, serialise_findings(large)):
        letter = letter_of(record, 8192, output_format)
        assert letter is not None
        assert ("publish", "OutputTooLarge") == (letter.stage, letter.error_type)
        assert f" ({size} of them are vectors: vector=float16 makes them smaller), " in letter.message
    halves = replace(large, findings={**large.findings, "embeddings": [Embedding(HALVES, vector)]})
    letter = letter_of(halves, 4096 if output_format == "json" else 8000, output_format)
    assert letter is not None
    assert "of them are vectors)" in letter.message
    both = replace(large, article=replace(large.article, document=b"{}"))
    letter = letter_of(both, 8192, output_format)
    assert letter is not None
    assert "(2 of them are its article: output.article=whole; " in letter.message


def test_a_score_that_is_no_probability_is_a_bug() -> None:
    """A score of a class outside [0, 1] raises, as an entity's does."""
    record = record_of_tasks()
    with pytest.raises(AssertionError):
        encode_record(replace(record, findings={"classifications": [{"task": "topic", "label": "x", "score": 1.5}]}))
