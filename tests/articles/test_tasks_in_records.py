"""Classes, vectors and tasks in records: the same in every format, exact, and absent where a worker has no tasks."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import replace

import numpy as np
import orjson
import pytest
from articles.test_written_formats import ALL, written
from hypothesis import given
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
    record_of_tasks,
    records_of_tasks,
)

from enricher.errors import InvalidArticle
from enricher.worker.articles import FORMATS, encode_record, record_as_json, serialise_findings
from enricher.worker.contracts import RecordFormat
from enricher.worker.heads.embedding import write_embeddings
from enricher.worker.records import (
    DeadLetter,
    Embedding,
    EnrichedRecord,
    ModelCard,
    Partition,
    RawRecord,
    TaskCard,
    TaskReport,
)

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
    for output_format in ALL:
        value = record_as_json(written(record, output_format), FORMATS[output_format].content_type)
        assert {"name": model.name, "digest": model.digest, "precision": model.precision} == orjson.loads(value)[
            "model"
        ]


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
    """What the encoder makes of a record, where records have at most this many bytes."""
    ticket = finished(RawRecord(Partition("t", 0), 0, None, b"{}"), record)
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
    """As it is for entities."""
    record = record_of_tasks()
    with pytest.raises(AssertionError):
        encode_record(replace(record, findings={"classifications": [{"task": "topic", "label": "x", "score": 1.5}]}))
