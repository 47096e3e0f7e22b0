"""Recomputes enriched records from their inputs and compares, in chunks: memory does not grow with the topic."""

from __future__ import annotations

import random
from base64 import b64decode
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import dist, hypot, isclose
from struct import error as StructError  # noqa: N812  the class
from struct import iter_unpack
from typing import Any

import orjson
from confluent_kafka import Message

from enricher.operate.verify.contract import HeaderValues, headers_by_name, same_topic, source_of_record
from enricher.operate.verify.ledger import Check, Place
from enricher.worker.kafka.metadata import raw_record
from enricher.worker.kafka.partition_reader import Ranges
from enricher.worker.kafka.ranges import RangeReader
from enricher.worker.records import RawRecord

Recompute = Callable[[Sequence[RawRecord]], Sequence[bytes | None]]
"""Turns inputs into the JSON of their enriched records, in the same order; None for an input without a record."""

RecordAsJson = Callable[[bytes, bytes | None], bytes]
"""Turns a record's value, with its content type, into JSON. Raises ValueError if it is no enriched record."""

LeastScore = Callable[[Mapping[str, Any]], float]
"""The least score that an entity or class of a record needs by the threshold of its task; 0 without one."""

Document = dict[str, Any]

_CHUNK = 500
_SCORE_TOLERANCE = 0.002
"""Batches differ from run to run, and with them the order of sums. Only equal precisions are compared."""
_VECTOR_TOLERANCE = 0.045
"""Length of the difference as a share of the length: about that of a cosine of 0.999, which the quality gate asks for."""
_SMALLEST_FLOAT32 = 2.0**-149
"""A number this small and its shortest text differ by up to half of it."""


@dataclass(slots=True, kw_only=True)
class Recomputation:
    """Compares records with what `recompute` returns for their inputs. Needs two readers, which are in use at once.

    `as_json`: reads records, which are not compared as bytes: no format says how numbers are written.
    `least_score`: a finding just above it may be in one of the two records alone.
    `topic_id`: that of the input topic now; records that name another one are not compared.
    """

    check: Check
    recompute: Recompute
    as_json: RecordAsJson
    least_score: LeastScore
    records: RangeReader
    articles: RangeReader
    input_topic: str
    topic_id: str | None
    other_models: int = 0
    """Records of another model, precision or version of a transform than what recomputes: not compared."""
    earlier: int = 0
    """Records whose input was in an earlier topic of the same name."""
    gone: int = 0
    """Records whose input was deleted."""

    def run(self, topic: str, ranges: Ranges, chosen: Container[int] | None) -> None:
        """Compare the records in `ranges` of the output topic, or only the `chosen` ones, counted from 0."""
        chunk: dict[Place, Document | None] = {}
        for message in self._records(topic, ranges, chosen):
            headers = headers_by_name(message)
            place = self._source(headers)
            if place is not None:
                chunk[place] = self._document(message.value() or b"", headers)
            if len(chunk) == _CHUNK:
                self._compare_all(chunk)
                chunk = {}
        self._compare_all(chunk)
        if (self.other_models or self.earlier) and not self.check.checked:
            self.check.doubt = (
                "every sampled record is of another model or transform, or of an earlier topic of this name"
            )

    def _records(self, topic: str, ranges: Ranges, chosen: Container[int] | None) -> Iterator[Message]:
        """Partition by partition, so that the inputs of a chunk are close together and are read at once."""
        index = -1
        for number in sorted(ranges):
            for message in self.records.read(topic, {number: ranges[number]}, f"recomputing {topic}[{number}]"):
                index += message.value() is not None
                if message.value() is not None and (chosen is None or index in chosen):
                    yield message

    def _document(self, value: bytes, headers: HeaderValues) -> Document | None:
        """The record; None if the value is none, which no recomputation equals."""
        try:
            document = orjson.loads(self.as_json(value, headers.get("content-type")))
        except ValueError:
            return None
        return document if isinstance(document, dict) else None

    def _source(self, headers: HeaderValues) -> Place | None:
        source = source_of_record(headers, tombstone=False)
        if source is None or source.topic != self.input_topic:
            return None  # other checks report it
        if not same_topic(source.topic_id, self.topic_id):
            self.earlier += 1
            return None
        return Place(source.topic, source.partition, source.offset)

    def _compare_all(self, chunk: Mapping[Place, Document | None]) -> None:
        articles = self._articles(chunk.keys())
        self.gone += len(chunk) - len(articles)
        expected = self.recompute(list(articles.values())) if articles else ()
        for (place, _), value in zip(articles.items(), expected, strict=True):
            self._compare(place, chunk[place], value)

    def _articles(self, places: AbstractSet[Place]) -> dict[Place, RawRecord]:
        """The inputs at `places` that still exist and have a value."""
        ranges: dict[int, tuple[int, int]] = {}
        for place in places:
            low, end = ranges.get(place.partition, (place.offset, place.offset + 1))
            ranges[place.partition] = min(low, place.offset), max(end, place.offset + 1)
        found: dict[Place, RawRecord] = {}
        for message in self.articles.read(self.input_topic, ranges, "fetching inputs", _ignore):
            place = Place.of(message)
            if place in places and message.value() is not None:
                found[place] = raw_record(message, self.topic_id)
        return found

    def _compare(self, place: Place, seen: Document | None, expected: bytes | None) -> None:
        wanted = None if expected is None else orjson.loads(expected)
        if seen and wanted and not same_model(seen, wanted):
            self.other_models += 1
            return
        self.check.note(place, ok=seen is not None and wanted is not None and alike(seen, wanted, self.least_score))


def _ignore(_number: int, _offsets: range) -> None:
    """An input that cannot be read has no record to compare."""


def chosen_of(total: int, sample: int, seed: int = 0) -> Container[int] | None:
    """The indices of `sample` of `total` records, at random; None for all."""
    return None if sample >= total else set(random.Random(seed).sample(range(total), sample))  # noqa: S311  not a secret


def same_model(seen: Document, wanted: Document) -> bool:
    """Whether two records were made by the same models, in the same tasks, with the same transforms and catalogue."""
    same_code = all(seen.get(name) == wanted.get(name) for name in ("transforms", "catalogue"))
    return same_code and seen.get("model") == wanted.get("model") and _models(seen) == _models(wanted)


def _models(document: Document) -> list[Document]:
    return [{key: value for key, value in task.items() if key != "coverage"} for task in document.get("tasks", ())]


def alike(seen: Document, wanted: Document, least_score: LeastScore = lambda _finding: 0.0) -> bool:
    """True if all but the version is equal, scores and vectors within the tolerance, findings at a threshold left out.

    A recomputation does not know the offsets; versions are checked separately.
    """
    try:
        return _is_equal(_certain(seen, wanted, least_score), _certain(wanted, seen, least_score))
    except (AttributeError, KeyError, TypeError, ValueError, StructError):
        return False  # a field is missing, or has another form than workers write


def _certain(document: Document, other: Document, least_score: LeastScore) -> Document:
    """The document without its version, and without findings at their threshold that the other document lacks.

    Another batch may have moved such findings below it. Two classes of nearly the same score may change places, so they are
    sorted.
    """
    found = {name: value for name, value in document.items() if name != "version"}
    for name in {"entities", "classifications"} & document.keys():
        shared = set(map(_identity, other.get(name, ())))
        found[name] = [
            each for each in found[name] if _identity(each) in shared or not _is_at_threshold(each, least_score(each))
        ]
    if "classifications" in found:
        found["classifications"].sort(key=lambda each: (each["task"], each["label"]))
    return found


def _is_at_threshold(finding: Mapping[str, Any], least: float) -> bool:
    # The catalogue finds a name only where no entity is: at its place there may have been one at the threshold.
    return least > 0 and ("source" in finding or finding["score"] - least <= _SCORE_TOLERANCE)


def _identity(finding: Mapping[str, Any]) -> bytes:
    """The finding without its score, as bytes that are equal for equal ones."""
    return orjson.dumps({**finding, "score": None}, option=orjson.OPT_SORT_KEYS)


def _is_equal(one: Any, other: Any, name: str = "") -> bool:  # noqa: ANN401  anything that JSON has
    """Whether two values of a field are equal, floating point within its tolerance."""
    match name, one, other:
        case "score" | "value", int() | float(), int() | float():
            return isclose(one, other, rel_tol=_SCORE_TOLERANCE, abs_tol=_SCORE_TOLERANCE)
        case "vector_float16", str(), str():
            return _are_alike(_halves(one), _halves(other))
        case "vector", list(), list():
            return _are_alike(one, other)
        case _, dict(), dict():
            return one.keys() == other.keys() and all(_is_equal(one[key], other[key], key) for key in one)
        case _, list(), list():
            return len(one) == len(other) and all(map(_is_equal, one, other))
    return bool(one == other)


def _are_alike(one: Sequence[float], other: Sequence[float]) -> bool:
    tolerance = _VECTOR_TOLERANCE * hypot(*other) + len(other) * _SMALLEST_FLOAT32
    return len(one) == len(other) and dist(one, other) <= tolerance


def _halves(packed: str) -> list[float]:
    """The numbers of a vector in float16. Raises ValueError and StructError."""
    return [number for (number,) in iter_unpack("<e", b64decode(packed))]
