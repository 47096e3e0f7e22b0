"""Which recomputed records of tasks are alike: every difference is found, and no right record is refused."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from support.records import record_of_tasks, records_of_tasks, writer_of

from enricher.operate.verify.recomputing import Document, alike, same_model
from enricher.worker.articles import FORMATS, encode_record, record_as_json
from enricher.worker.contracts import RecordFormat
from enricher.worker.records import EnrichedRecord

ALL: tuple[RecordFormat, ...] = ("json", "avro", "protobuf", "json-schema")


def document(record: EnrichedRecord, output_format: RecordFormat = "json") -> Document:
    """A record as the verifier reads it."""
    value = writer_of(output_format).write(record)
    read: Document = orjson.loads(record_as_json(value, FORMATS[output_format].content_type))
    return read


@given(record=records_of_tasks())
@pytest.mark.parametrize("output_format", ALL)
def test_whatever_the_worker_writes_is_alike_in_every_format(
    output_format: RecordFormat, record: EnrichedRecord
) -> None:
    """No format changes a record so that it would differ from its recomputation."""
    read = document(record, output_format)
    assert alike(read, orjson.loads(encode_record(record)))
    assert same_model(read, orjson.loads(encode_record(record)))


@pytest.mark.parametrize("output_format", ALL)
def test_the_smallest_numbers_are_alike_in_every_format(output_format: RecordFormat) -> None:
    """JSON has their shortest text, which as a double is another number."""
    record = record_of_tasks()
    smallest = [replace(record.findings["embeddings"][0], vector=np.array([1e-45], np.float32))]
    record = replace(record, findings={**record.findings, "embeddings": smallest})
    assert alike(document(record, output_format), orjson.loads(encode_record(record)))


DIFFERENCES: dict[str, Callable[[Any], object]] = {
    "label": lambda d: d["classifications"][0].update(label="x"),
    "score": lambda d: d["classifications"][0].update(score=0.7),
    "no class": lambda d: d["classifications"].clear(),
    "vector": lambda d: d["embeddings"][0]["vector"].__setitem__(2, -0.64),
    "float16": lambda d: d["embeddings"][1].update(vector_float16="BjA6sCA5tzg="),
    "form": lambda d: d["embeddings"][0].update(vector_float16=d["embeddings"][1]["vector_float16"]),
    "no vector": lambda d: d["embeddings"].pop(),
    "coverage": lambda d: d["tasks"][1]["coverage"].update(truncated=True),
    "no vectors": lambda d: d.pop("embeddings"),
    "no list": lambda d: d.update(embeddings=7),
    "no list of entities": lambda d: d.update(entities=7),
    "a number that is null": lambda d: d["embeddings"][0]["vector"].__setitem__(1, None),
    "half a float16": lambda d: d["embeddings"][1].update(vector_float16="BjA6sCA5tw=="),
    "no base64": lambda d: d["embeddings"][1].update(vector_float16="BjA6sCA5-_4="),
    "a score that is text": lambda d: d["classifications"][0].update(score="1"),
    "a class that names no task": lambda d: d["classifications"][0].pop("task"),
}


@pytest.mark.parametrize("difference", DIFFERENCES)
def test_another_answer_is_not_alike(difference: str) -> None:
    """Otherwise a recomputation would prove nothing about it."""
    wanted = document(record_of_tasks())
    other = copy.deepcopy(wanted)
    DIFFERENCES[difference](other)
    assert alike(wanted, wanted)
    assert not alike(other, wanted)
    assert not alike(wanted, other)


def test_small_differences_of_another_batch_are_alike() -> None:
    """Of scores, of numbers, and of the order of two classes that are nearly as probable."""
    wanted = document(record_of_tasks())
    wanted["classifications"].append({"task": "topic", "label": "sports", "score": 0.7499})
    other = copy.deepcopy(wanted)
    other["classifications"].reverse()
    other["classifications"][0]["score"] = 0.7507
    other["embeddings"][0]["vector"] = [each * 1.001 for each in wanted["embeddings"][0]["vector"]]
    assert alike(other, wanted)


def always(least: float, _finding: object) -> float:
    """One threshold for every finding."""
    return least


def test_a_finding_at_its_threshold_may_be_missing_in_one_record() -> None:
    """Another batch gives it a score just below; a finding that is clearly above may not be missing."""
    wanted = document(record_of_tasks())
    (entity,), (found,) = wanted["entities"], wanted["classifications"]
    for listed, score in (("entities", entity["score"]), ("classifications", found["score"])):
        other = copy.deepcopy(wanted)
        other[listed] = []
        for least, may_miss in ((score, True), (score - 0.0019, True), (score - 0.01, False), (0.0, False)):
            assert may_miss is alike(other, wanted, partial(always, least))
            assert may_miss is alike(wanted, other, partial(always, least))
        nearly = copy.deepcopy(wanted)
        nearly[listed][0]["score"] = score - 0.001
        assert alike(nearly, wanted, partial(always, score - 0.0015))
    found_in_text = copy.deepcopy(wanted)
    found_in_text["entities"].append({**entity, "start": 90, "end": 99, "score": 1.0, "source": "catalogue"})
    assert alike(found_in_text, wanted, partial(always, 0.5)), "its place may have been an entity at the threshold"
    assert not alike(found_in_text, wanted)


def test_a_record_of_other_models_is_not_compared() -> None:
    """Also if only the model of one task is another one, or the catalogue."""
    wanted = document(record_of_tasks())
    other = copy.deepcopy(wanted)
    other["tasks"][2]["model"]["precision"] = "fp16"
    assert (True, False) == (same_model(wanted, wanted), same_model(other, wanted))
    other = {**wanted, "catalogue": {"digest": "sha256:5f", "generation": 1}}
    assert (True, False) == (same_model(other, other), same_model(other, wanted))
