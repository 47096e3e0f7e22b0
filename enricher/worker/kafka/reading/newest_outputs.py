"""Searches for the newest output of each partition at the end of an output topic, backwards in growing steps.

The search may take long beside records of others, so it goes on in several looks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaError, Message

from enricher.errors import BrokerError
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.kafka.shared.client_errors import ClientErrors
from enricher.worker.kafka.shared.errors import mapping_errors
from enricher.worker.kafka.shared.metadata import headers_of
from enricher.worker.kafka.shared.partition_reader import PartitionReader
from enricher.worker.records import Headers, Partition
from enricher.worker.runtime.deadlines import Deadline

_FIRST_LOOK = 64  # offsets from the end; nearly always the very last record is ours
_WIDEN = 16
# An end behind markers is noticed when a fetch comes back empty, so an empty fetch must not wait long.
_PROPERTIES = {"auto.offset.reset": "earliest", "fetch.wait.max.ms": 50}
_SOURCES = ("enricher.source", "enricher.dlq.source")


@dataclass(frozen=True, slots=True)
class Source:
    """The input that an output names."""

    offset: int
    topic_id: str | None


@dataclass(frozen=True, slots=True)
class Newest:
    """The newest output in one partition of an output topic."""

    source: Source | None
    """The input of our newest output; None if there is no output of ours."""
    recordless: int
    """Offsets behind that output at which there is no record: markers of transactions, aborted records, removed ones."""


class Search:
    """A search in one topic, for all partitions at once. `bounds`: the first offset and the end of each place.

    `records`: how many were read. `looked_s`: for how long. `newest`: the result by number, once it is complete.
    """

    def __init__(self, config: KafkaConfig, topic: str, bounds: Mapping[Partition, tuple[int, int]]) -> None:
        self._config = config
        self._topic = topic
        self._bounds = bounds
        self._client_errors = ClientErrors(config)
        self._reader = PartitionReader(config.consumer() | _PROPERTIES, self._client_errors)
        self._look = Deadline(0.0)
        self._steps = self._search()
        self.places = frozenset(bounds)
        self.records = 0
        self.looked_s = 0.0
        self.newest: Mapping[int, Newest] | None = None

    def close(self) -> None:
        """Close its client."""
        if self.newest is None:
            self._reader.close()

    def look(self, look_s: float) -> Mapping[int, Newest] | None:
        """Search on for so long; None if that is not enough. Raises TransactionTrouble, or BrokerError without a right."""
        if self.newest is None:
            self._look = Deadline(look_s)
            next(self._steps, None)
            if self.records:
                self.looked_s += look_s
        return self.newest

    def _search(self) -> Iterator[None]:
        """All steps of the search: each ends when the look is over."""
        input_topic, found = self._config.input_topic, dict[int, tuple[int, Source]]()
        records: Counter[int] = Counter()
        """Behind the newest output; while it is not found, all that were read."""
        until, offsets = {place: end for place, (_low, end) in self._bounds.items()}, _FIRST_LOOK
        while until:
            starts = {place: max(self._bounds[place][0], end - offsets) for place, end in until.items()}
            later = records.copy()
            for message in self._messages(starts, until):
                if message is None:
                    yield
                    continue
                self.records += 1
                number, offset = message.partition() or 0, message.offset() or 0
                if source := _source_of(headers_of(message), Partition(input_topic, number)):
                    found[number], records[number] = (offset, source), later[number]
                else:
                    records[number] += 1
            until = {
                place: start
                for place, start in starts.items()
                if place.number not in found and start > self._bounds[place][0]
            }
            offsets *= _WIDEN
        newest: dict[int, Newest] = {}
        for place, (low, end) in self._bounds.items():
            at, source_or_none = found.get(place.number, (low - 1, None))
            newest[place.number] = Newest(source_or_none, end - at - 1 - records[place.number])
        self.close()
        self.newest = newest

    def _messages(self, starts: Mapping[Partition, int], until: Mapping[Partition, int]) -> Iterator[Message | None]:
        """The records from `starts` until `until`, each partition in order. None: pause here."""
        ranges = {place.number: (start, until[place]) for place, start in starts.items()}
        with mapping_errors(f"reading the end of '{self._topic}'", self._client_errors):
            for message in self._reader.read(self._topic, ranges, self._refuse_missing_right, limit=1_000):
                if message is None:
                    if self._reader.left and self._look.over:
                        yield None
                elif message.error() is None:
                    yield message
                else:  # the end of the partition, which may have moved back since it was asked for
                    self._reader.finish(message.partition() or 0)

    def _refuse_missing_right(self, error: KafkaError) -> bool:
        """Raise BrokerError for a missing right. Any other error passes, or the search ends at its bound."""
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            # Not the right's own sentence: a worker with committed offsets does not need it.
            message = (
                f"the group '{self._config.group_id}' has no committed offsets, and only '{self._topic}' shows where to "
                f"resume: allow this worker READ on the topic '{self._topic}', or say where to begin with "
                "kafka.start=beginning or kafka.start=end"
            )
            raise BrokerError(message)
        return False


def _source_of(headers: Headers, partition: Partition) -> Source | None:
    """The input that these headers name, if it is in `partition`. Ours come last, so the last of a name counts."""
    values = {name: value for name, value in headers if value is not None}
    prefix = _SOURCES["enricher.dlq.stage" in values]
    if values.get(f"{prefix}.topic") != partition.topic.encode():
        return None
    if values.get(f"{prefix}.partition") != b"%d" % partition.number:
        return None
    offset, topic_id = values.get(f"{prefix}.offset", b""), values.get(f"{prefix}.topic.id")
    if not offset.isdigit():
        return None
    return Source(int(offset), topic_id.decode() if topic_id else None)
