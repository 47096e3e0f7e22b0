"""Recomputes enriched records from their inputs and compares. In chunks: what is in memory does not grow with the topic."""

from __future__ import annotations

import random
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, cast

import orjson
from confluent_kafka import Message

from enricher.kafka.metadata import headers_of
from enricher.verify.committed import same_topic
from enricher.verify.findings import Check, Place
from enricher.verify.headers import by_name, source_of_record
from enricher.verify.reading import RangeReader, Ranges

Recompute = Callable[[Sequence[bytes]], Sequence[bytes | None]]
"""Values of inputs -> the values of their enriched records, in the same order; None where there should be none."""

SCORE_TOLERANCE = 0.002
"""Batches, and with them the order of sums, differ from run to run; precisions are compared only with themselves."""

_CHUNK = 500


class PayloadCheck:
    """Compares records with what `recompute` makes of their inputs. The readers must be two: both are in use at once.

    `topic_id`: of the input topic as it is now; records that name another one are not compared.
    """

    def __init__(
        self,
        check: Check,
        recompute: Recompute,
        *,
        records: RangeReader,
        articles: RangeReader,
        input_topic: str,
        topic_id: str | None,
    ) -> None:
        self.other_models = 0
        """Records of another model (or precision) than the one that recomputes: not compared."""
        self.earlier = 0
        """Records whose input stood in an earlier topic of the same name."""
        self.gone = 0
        """Records whose input is not there any more."""
        self._check = check
        self._recompute = recompute
        self._record_reader = records
        self._article_reader = articles
        self._input_topic = input_topic
        self._topic_id = topic_id

    def run(self, topic: str, ranges: Ranges, chosen: Container[int] | None) -> None:
        """Compare the records in `ranges` of the output topic, or the `chosen` ones of them: 0 is the first."""
        chunk: dict[Place, bytes] = {}
        for message in self._records(topic, ranges, chosen):
            place = self._source(message)
            if place is not None:
                chunk[place] = cast("bytes", message.value())
            if len(chunk) == _CHUNK:
                self._compare_all(chunk)
                chunk = {}
        self._compare_all(chunk)
        if (self.other_models or self.earlier) and not self._check.checked:
            self._check.doubt = "every record that was drawn is of another model, or of an earlier topic of this name"

    def _records(self, topic: str, ranges: Ranges, chosen: Container[int] | None) -> Iterator[Message]:
        """Partition by partition: so the inputs of a chunk lie close together, and are read in one go."""
        index = -1
        for number in sorted(ranges):
            for message in self._record_reader.read(topic, {number: ranges[number]}, f"recomputing {topic}[{number}]"):
                index += message.value() is not None
                if message.value() is not None and (chosen is None or index in chosen):
                    yield message

    def _source(self, message: Message) -> Place | None:
        headers = by_name(headers_of(message))
        source = source_of_record(headers, tombstone=False)
        if source is None or source.topic != self._input_topic:
            return None  # other checks say so
        if not same_topic(source.topic_id, self._topic_id):
            self.earlier += 1
            return None
        return Place(source.topic, source.partition, source.offset)

    def _compare_all(self, chunk: Mapping[Place, bytes]) -> None:
        articles = self._articles(chunk.keys())
        self.gone += len(chunk) - len(articles)
        expected = self._recompute(list(articles.values())) if articles else ()
        for (place, _), value in zip(articles.items(), expected, strict=True):
            self._compare(place, chunk[place], value)

    def _articles(self, places: AbstractSet[Place]) -> dict[Place, bytes]:
        """The values of the inputs at `places`, of those that are there and have one."""
        ranges: dict[int, tuple[int, int]] = {}
        for place in places:
            low, end = ranges.get(place.partition, (place.offset, place.offset + 1))
            ranges[place.partition] = min(low, place.offset), max(end, place.offset + 1)
        found: dict[Place, bytes] = {}
        for message in self._article_reader.read(self._input_topic, ranges, "fetching inputs", _passed_over):
            place = Place(self._input_topic, message.partition() or 0, message.offset() or 0)
            value = message.value()
            if place in places and value is not None:
                found[place] = value
        return found

    def _compare(self, place: Place, record: bytes, expected: bytes | None) -> None:
        seen, wanted = parsed(record), None if expected is None else parsed(expected)
        if seen and wanted and seen.get("model") != wanted.get("model"):
            self.other_models += 1
            return
        self._check.checked += 1
        if seen is None or wanted is None or not alike(seen, wanted):
            self._check.fail(place)


def _passed_over(_number: int, _offsets: range) -> None:
    """What nobody can read has no record to compare."""


def chosen_of(total: int, sample: int, seed: int = 0) -> Container[int] | None:
    """`sample` of `total` records, drawn at random; None for all."""
    return None if sample >= total else set(random.Random(seed).sample(range(total), sample))  # noqa: S311  not a secret


def parsed(value: bytes) -> dict[str, Any] | None:
    """A record's value; None where it is no JSON object."""
    try:
        document = orjson.loads(value)
    except orjson.JSONDecodeError:
        return None
    return document if isinstance(document, dict) else None


def alike(seen: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """True where all is equal but the scores, and those nearly."""
    ours, theirs = dict(seen), dict(wanted)
    entities, others = ours.pop("entities", None), theirs.pop("entities", None)
    if ours != theirs or not isinstance(entities, list) or not isinstance(others, list):
        return False
    return len(entities) == len(others) and all(map(_alike_entity, entities, others))


def _alike_entity(seen: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    ours, theirs = dict(seen), dict(wanted)
    score, other = ours.pop("score", 0.0), theirs.pop("score", 0.0)
    return ours == theirs and abs(score - other) <= SCORE_TOLERANCE
