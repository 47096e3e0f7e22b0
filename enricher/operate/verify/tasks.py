"""Whether what a record says about tasks agrees with itself. Written from `schemas/`, not from the worker's code."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence
from math import dist, hypot, isclose, isfinite
from struct import iter_unpack
from typing import Any

Document = Mapping[str, Any]

SCORE_TOLERANCE = 0.002
"""Batches differ from run to run, and with them the order of sums. Only equal precisions are compared."""

_VECTOR_TOLERANCE = 0.045
"""Length of the difference as a share of the length: about that of a cosine of 0.999, which the quality gate asks for."""

_SMALLEST_FLOAT32 = 2.0**-149
"""A number this small and its shortest text differ by up to half of it."""

LISTS = ("classifications", "embeddings", "tasks")
"""The lists that only records of workers with tasks have."""
REGRESSIONS = "regressions"
"""Listed by records of workers with a task of this kind only."""
_BEYOND_FLOAT32 = 2.0**128 - 2.0**103
"""From here on, a number is rounded to a float32 that is infinite."""


def is_consistent(document: Document) -> bool:
    """Whether names, scores, vectors and coverage fit together. A record without tasks has none of these."""
    present = [name for name in (*LISTS, REGRESSIONS) if name in document]
    try:
        if not present:
            return not any("task" in entity for entity in document.get("entities", ()))
        expected = {*LISTS} | ({REGRESSIONS} if has_regressions(document) else set())
        return {*present} == expected and len(document["tasks"]) > 0 and _agrees(document, document["tasks"])
    except (AttributeError, KeyError, TypeError, ValueError, OverflowError):
        return False  # a field is missing or has another type


def _agrees(document: Document, tasks: Sequence[Document]) -> bool:
    poolings = {task["name"]: task.get("pooling") for task in tasks}
    ran = {task["name"]: task["kind"] for task in tasks if task["coverage"] is not None}
    several = sum(task["kind"] == "ner" for task in tasks) > 1
    embeddings, classes = document["embeddings"], document["classifications"]
    vectors_of, numbers = [each["task"] for each in embeddings], document.get(REGRESSIONS, [])
    return (
        len(poolings) == len(tasks)
        and all(map(_is_task, tasks))
        and document["model"] == _model_of(tasks)
        and all(ran.get(each["task"]) == "classification" and _is_label(each) for each in classes)
        and all(ran.get(task) == "embedding" for task in vectors_of)
        and len({*vectors_of}) == len(vectors_of)
        and all(each["pooling"] == poolings[each["task"]] and _is_vector(each) for each in embeddings)
        and all(ran.get(each["task"]) == "regression" and isfinite(each["value"]) for each in numbers)
        and len({each["task"] for each in numbers}) == len(numbers)
        and all(_found_by(entity, ran, several=several) and _is_label(entity) for entity in document["entities"])
    )


def has_regressions(document: Document) -> bool:
    """Whether the record lists numbers."""
    return any(task["kind"] == "regression" for task in document["tasks"])


def _is_task(task: Document) -> bool:
    """It has a name and a model, a pooling unless it finds entities, and has seen tokens if it has seen windows."""
    coverage, model = task["coverage"] or {"tokens": 0, "windows": 0}, task["model"]
    tokens, windows = coverage["tokens"], coverage["windows"]
    named = task["name"] and task["kind"] and model["name"] and model["digest"] and model["precision"]
    pooled = task["kind"] == "ner" or task["pooling"]
    return bool(named and pooled) and 0 <= windows <= tokens and (tokens > 0) == (windows > 0)


def _model_of(tasks: Sequence[Document]) -> object:
    """The record's field `model`."""
    ran = [task for task in tasks if task["coverage"] is not None]
    finding_entities = [task for task in ran if task["kind"] == "ner"]
    return (finding_entities or ran or tasks)[0]["model"]


def _is_label(found: Document) -> bool:
    """Whether a class or an entity has a label, and a probability for its score."""
    return bool(found["label"]) and 0 <= found["score"] <= 1


def _found_by(entity: Document, ran: Mapping[str, str], *, several: bool) -> bool:
    """Whether a task that ran found the entity, which names it where several tasks of the worker find entities."""
    if several:
        return ran.get(entity["task"]) == "ner"
    return "task" not in entity and "ner" in ran.values()


def _is_vector(embedding: Document) -> bool:
    numbers = vector_of(embedding)
    dimensions: int = embedding["dimensions"]
    return len(numbers) == dimensions > 0 and all(isfinite(each) and abs(each) < _BEYOND_FLOAT32 for each in numbers)


def vector_of(embedding: Document) -> list[float]:
    """The numbers of a vector. Raises ValueError unless it is in exactly one of its two forms."""
    numbers, halves = embedding.get("vector"), embedding.get("vector_float16")
    if (numbers is None) == (halves is None):
        raise ValueError("a vector is either a list or float16")
    if numbers is not None:
        return [each + 0.0 for each in numbers]  # a text or null raises TypeError
    packed = b64decode(halves or "", validate=True)
    if len(packed) % 2:
        raise ValueError("half a number is left")
    return [number for (number,) in iter_unpack("<e", packed)]


def same_model(seen: Document, wanted: Document) -> bool:
    """Whether two records were made by the same models, in the same tasks."""
    return seen.get("model") == wanted.get("model") and _models(seen) == _models(wanted)


def _models(document: Document) -> list[Document]:
    return [{key: value for key, value in task.items() if key != "coverage"} for task in document.get("tasks", ())]


def alike_vectors(seen: object, wanted: object) -> bool:
    """Whether the embeddings of two records are equal, vectors within the tolerance; also if both have none."""
    if not isinstance(seen, list) or not isinstance(wanted, list):
        return seen == wanted
    return len(seen) == len(wanted) and all(map(_alike_vector, seen, wanted))


def alike_numbers(seen: object, wanted: object) -> bool:
    """Whether the numbers of two records are equal within the tolerance, which grows with them; also if both have none."""
    if not isinstance(seen, list) or not isinstance(wanted, list):
        return seen == wanted
    return len(seen) == len(wanted) and all(
        {**ours, "value": None} == {**theirs, "value": None}
        and isclose(ours["value"], theirs["value"], rel_tol=SCORE_TOLERANCE, abs_tol=SCORE_TOLERANCE)
        for ours, theirs in zip(seen, wanted, strict=True)
    )


def _alike_vector(seen: Document, wanted: Document) -> bool:
    forms = {"vector", "vector_float16"}
    if seen.keys() != wanted.keys() or any(seen[key] != wanted[key] for key in seen.keys() - forms):
        return False
    try:
        ours, theirs = vector_of(seen), vector_of(wanted)
    except (TypeError, ValueError):
        return False
    tolerance = _VECTOR_TOLERANCE * hypot(*theirs) + len(theirs) * _SMALLEST_FLOAT32
    return len(ours) == len(theirs) and dist(ours, theirs) <= tolerance
