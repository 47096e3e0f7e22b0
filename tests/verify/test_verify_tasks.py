"""How the verifier judges what records say about tasks: every mistake is found, and no right record is refused."""

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
from support.task_records import record_of_tasks, records_of_tasks

from enricher.operate.verify.payload import alike
from enricher.operate.verify.tasks import is_consistent, same_model, vector_of
from enricher.operate.verify.values import Document, document_of
from enricher.worker.articles import FORMATS, encode_record, record_writer
from enricher.worker.contracts import RecordFormat
from enricher.worker.records import EnrichedRecord, ModelCard

ALL: tuple[RecordFormat, ...] = ("json", "avro", "protobuf", "json-schema")
CARD = ModelCard("m", "d", "fp32")


def document(record: EnrichedRecord, output_format: RecordFormat = "json") -> Document:
    """A record as the verifier reads it."""
    writer = record_writer(output_format)
    if writer.schema:
        writer.begin_with(1)
    read = document_of(writer.write(record), FORMATS[output_format].content_type)
    assert read is not None
    return read


@given(record=records_of_tasks())
@pytest.mark.parametrize("output_format", ALL)
def test_whatever_the_worker_writes_is_consistent_and_alike_in_every_format(
    output_format: RecordFormat, record: EnrichedRecord
) -> None:
    """The verifier's own reader and rules agree with the writer."""
    read = document(record, output_format)
    assert is_consistent(read)
    assert alike(read, orjson.loads(encode_record(record)))
    assert same_model(read, orjson.loads(encode_record(record)))


@pytest.mark.parametrize("output_format", ALL)
def test_the_smallest_numbers_are_alike_in_every_format(output_format: RecordFormat) -> None:
    """JSON has their shortest text, which as a double is another number."""
    record = record_of_tasks()
    smallest = [replace(record.findings["embeddings"][0], vector=np.array([1e-45], np.float32))]
    record = replace(record, findings={**record.findings, "embeddings": smallest})
    assert alike(document(record, output_format), orjson.loads(encode_record(record)))


MISTAKES: dict[str, Callable[[Any], object]] = {
    "a class of an unknown task": lambda d: d["classifications"][0].update(task="other"),
    "a class of another kind of task": lambda d: d["classifications"][0].update(task="similar"),
    "a class without a label": lambda d: d["classifications"][0].update(label=""),
    "a score above 1": lambda d: d["classifications"][0].update(score=1.01),
    "a score that is text": lambda d: d["classifications"][0].update(score="1"),
    "an entity of an unlikely score": lambda d: d["entities"][0].update(score=-0.1),
    "an entity that names the only task": lambda d: d["entities"][0].update(task="names"),
    "entities without a task that ran": lambda d: d["tasks"][0].update(coverage=None),
    "a class of a task that did not run": lambda d: d["tasks"][1].update(coverage=None),
    "a vector of a task that did not run": lambda d: d["tasks"][2].update(coverage=None),
    "a vector of an unknown task": lambda d: d["embeddings"][0].update(task="other"),
    "two vectors of one task": lambda d: d["embeddings"].append(d["embeddings"][0]),
    "other dimensions": lambda d: d["embeddings"][0].update(dimensions=5),
    "other dimensions of float16": lambda d: d["embeddings"][1].update(dimensions=8),
    "no numbers": lambda d: d["embeddings"][0].update(vector=[], dimensions=0),
    "a number that is null": lambda d: d["embeddings"][0]["vector"].__setitem__(1, None),
    "a number beyond float32": lambda d: d["embeddings"][0]["vector"].__setitem__(1, 1e39),
    "a float16 that is infinite": lambda d: d["embeddings"][1].update(vector_float16="AHwAfAB8AHw="),
    "half a float16": lambda d: d["embeddings"][1].update(vector_float16="BjA6sCA5tw=="),
    "no base64": lambda d: d["embeddings"][1].update(vector_float16="BjA6sCA5-_4="),
    "both forms": lambda d: d["embeddings"][0].update(vector_float16="BjA6sCA5ty4="),
    "neither form": lambda d: d["embeddings"][0].pop("vector"),
    "another pooling than its task": lambda d: d["embeddings"][0].update(pooling="max"),
    "two tasks of one name": lambda d: d["tasks"].append(d["tasks"][0]),
    "a task without a name": lambda d: d["tasks"][3].update(name=""),
    "a task without a digest": lambda d: d["tasks"][1]["model"].update(digest=""),
    "a class task without pooling": lambda d: d["tasks"][1].pop("pooling"),
    "windows without tokens": lambda d: d["tasks"][1]["coverage"].update(tokens=0),
    "fewer than no windows": lambda d: d["tasks"][1]["coverage"].update(tokens=-1, windows=-1),
    "a task without coverage": lambda d: d["tasks"][1].pop("coverage"),
    "the model of another task": lambda d: d.update(model=d["tasks"][1]["model"]),
    "no tasks": lambda d: d.update(tasks=[]),
    "tasks left out": lambda d: d.pop("tasks"),
    "vectors left out": lambda d: d.pop("embeddings"),
    "no list": lambda d: d.update(embeddings=7),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_found(mistake: str) -> None:
    """One change of a right record at a time."""
    right = document(record_of_tasks())
    wrong = copy.deepcopy(right)
    MISTAKES[mistake](wrong)
    assert (True, False) == (is_consistent(right), is_consistent(wrong))


def test_where_several_tasks_find_entities_each_entity_names_one() -> None:
    """One that ran and finds entities."""
    right = document(record_of_tasks())
    right["tasks"].append({**right["tasks"][0], "name": "more"})
    assert not is_consistent(right)
    for task, consistent in (("more", True), ("names", True), ("topic", False), ("other", False)):
        right["entities"][0]["task"] = task
        assert consistent is is_consistent(right)


def test_a_record_without_tasks_names_none() -> None:
    """A name of a task that nobody lists says nothing."""
    plain = {
        key: value for key, value in document(record_of_tasks()).items() if key not in {"classifications", "tasks"}
    }
    del plain["embeddings"]
    assert is_consistent(plain)
    assert not is_consistent(plain | {"entities": [{**plain["entities"][0], "task": "names"}]})


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
    other["embeddings"][0]["vector"] = [each * 1.001 for each in vector_of(wanted["embeddings"][0])]
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


def test_a_record_of_other_models_is_not_compared() -> None:
    """Also if only the model of one task is another one."""
    wanted = document(record_of_tasks())
    other = copy.deepcopy(wanted)
    other["tasks"][2]["model"]["precision"] = "fp16"
    assert (True, False) == (same_model(wanted, wanted), same_model(other, wanted))
