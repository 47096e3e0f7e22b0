"""Finds where to resume partitions whose committed offset is gone, from the group's newest outputs.

Every output names its input's partition and offset and was committed with it, and the outputs of one partition are in the
order of these offsets. So the newest output of a partition (or dead letter, if that is newer) shows where to resume.

Two things hide newer outputs. A transaction that is open, whoever's it is, hides every record behind its first one until it
ends: that is waited for. Compaction removes outputs, deletions of articles above all: where it may have removed the newest
ones, what is left is only a lower bound.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Collection, Generator, Iterator, Mapping
from dataclasses import dataclass

from confluent_kafka import KafkaError, Message

from enricher.errors import BrokerError, SettingsError, TransactionTrouble
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.kafka.shared.client_errors import ClientErrors
from enricher.worker.kafka.shared.errors import mapping_errors
from enricher.worker.kafka.shared.metadata import headers_of, settings_of
from enricher.worker.kafka.shared.partition_reader import PartitionReader
from enricher.worker.kafka.shared.topicwatch import TopicWatch
from enricher.worker.records import Headers, Partition
from enricher.worker.rules.offsets import names_of
from enricher.worker.runtime.deadlines import Deadline

log = logging.getLogger(__name__)

_FIRST_LOOK = 64  # offsets from the end; nearly always the very last record is ours
_WIDEN = 16
_SEARCH_S = 20.0
"""How long one topic is read, for all partitions together. A topic that others write to may hold any number of records."""
OPEN_S = 960.0
"""How long an open transaction in an output topic is waited for. Brokers abort one after `transaction.max.timeout.ms` at the
latest, 15 minutes by default."""
_MARKER = 1
"""Offsets without a record behind our newest output that are no sign of a missing one: a missing output would leave two, its
own and that of the marker which ended its transaction."""
_SOURCES = ("enricher.source", "enricher.dlq.source")


@dataclass(frozen=True, slots=True)
class _Source:
    """The input that an output names."""

    offset: int
    topic_id: str | None


@dataclass(frozen=True, slots=True)
class _Newest:
    """The newest output in one partition of an output topic."""

    source: _Source | None
    """The input of our newest output; None if there is no output of ours."""
    recordless: int
    """Offsets behind that output at which there is no record: markers of transactions, aborted records, removed ones."""


@dataclass(frozen=True, slots=True)
class _Mark:
    """The end of an output partition, open transactions included, when it was asked for first, and when that was."""

    end: int
    since_s: float


class UnsettledOutputs(TransactionTrouble):
    """The outputs of these input partitions cannot all be seen yet, because a transaction is open in an output topic."""

    def __init__(self, message: str, partitions: frozenset[Partition]) -> None:
        super().__init__(message)
        self.partitions = partitions


class StillSearching(TransactionTrouble):
    """The newest outputs are not found yet; the same question again continues the search, which is bounded."""


class OutputTails:
    """Reads the ends of the output topic and of the dead-letter topic. Commits nothing and joins no group."""

    def __init__(self, config: KafkaConfig, watch: TopicWatch) -> None:
        self._config = config
        self._watch = watch
        self._searches: dict[str, _Search] = {}
        """The searches by topic: those that are not over, and the results of those that wait for another topic's."""
        self._marks: dict[Partition, _Mark] = {}
        """Ends that the last stable offset has to reach. What others write later is not waited for: it is not ours, since
        nobody writes outputs of a partition whose start is unknown."""

    def next_offsets(self, partitions: Collection[Partition], look_s: float = _SEARCH_S) -> Mapping[Partition, int]:
        """The offset after the newest input with an output, for each partition that has outputs.

        Reads each topic for `look_s` at most; raises StillSearching if that is not enough. Raises UnsettledOutputs while a
        transaction is open, SettingsError if the outputs cannot tell, BrokerError if they may not be read,
        TransactionTrouble if no broker answers.
        """
        found: dict[Partition, int] = {}
        doubtful: dict[Partition, str] = {}
        topics = (self._config.output_topic, self._config.dead_letter_topic)
        # These partitions exist in the output topics, so outputs are in the partition of their input.
        bounds = self._bounds([Partition(topic, partition.number) for topic in topics for partition in partitions])
        for topic in topics:
            of_topic = {place: bound for place, bound in bounds.items() if place.topic == topic}
            for number, newest in self._newest(topic, of_topic, look_s).items():
                partition, source = Partition(self._config.input_topic, number), newest.source
                if source and source.topic_id in {None, self._watch.topic_id}:
                    found[partition] = max(found.get(partition, 0), source.offset + 1)
                if newest.recordless > _MARKER:
                    doubtful.setdefault(partition, topic)
        # The result holds for the topic as it was at the start: it may have been created again meanwhile.
        self._watch.ask()
        self._watch.confirm()
        self._check(found, doubtful)
        self.close()
        for place in bounds:
            self._marks.pop(place, None)
        return found

    def unwritten(self) -> bool:
        """Whether nothing was ever written to the output topics, not even in a transaction that is open or was aborted.

        Blocks for the request timeout at most; raises TransactionTrouble.
        """
        topics = (self._config.output_topic, self._config.dead_letter_topic)
        places = [Partition(topic, number) for topic in topics for number in range(self._watch.partitions[topic])]
        return not any(self._watch.high_watermarks(places).values())

    def close(self) -> None:
        """Give up searches that are not over, and forget what the others have found."""
        while self._searches:
            self._searches.popitem()[1].close()

    def _newest(self, topic: str, bounds: Mapping[Partition, tuple[int, int]], look_s: float) -> Mapping[int, _Newest]:
        """The newest output in each partition of one topic, by its number."""
        # A partition with end 0 has never been written, not even with a transaction marker.
        written = {place: (low, end) for place, (low, end) in bounds.items() if end > 0}
        if not written:
            return {}
        newest = self._look(topic, written, look_s)
        for place, (low, _end) in written.items():
            if newest[place.number].source is None and low > 0:
                partition = Partition(self._config.input_topic, place.number)
                raise cannot_tell(self._config, partition, f"its records in '{topic}' were deleted")
        return newest

    def _look(self, topic: str, written: Mapping[Partition, tuple[int, int]], look_s: float) -> Mapping[int, _Newest]:
        """Search for this long, where the last look stopped if it was for the same partitions."""
        if topic in self._searches and self._searches[topic].places != written.keys():
            self.close()
        if topic not in self._searches:
            tail = _Tail(self._config, topic)
            self._searches[topic] = _Search(tail, tail.newest(written, self._config.input_topic), frozenset(written))
        search = self._searches[topic]
        if search.newest is not None:
            return search.newest
        try:
            search.tail.look = Deadline(look_s)
            next(search.steps)
        except StopIteration as result:
            newest: Mapping[int, _Newest] = result.value
            search.newest = newest
            search.tail.close()
            return newest
        except BaseException:
            self.close()
            raise
        if not search.tail.records:
            raise TransactionTrouble(f"no answer from '{topic}' within {look_s:g} s")
        search.looked_s += look_s
        count = search.tail.records
        if search.looked_s < _SEARCH_S:
            log.info("searching '%s' for the newest outputs: %d records read so far", topic, count)
            raise StillSearching(f"the newest outputs are not among {count} records at the end of '{topic}'")
        self.close()
        partition = Partition(self._config.input_topic, min(written).number)
        reason = (
            f"no output of some partition is among the {count} newest records of '{topic}', which others write to, too"
        )
        raise cannot_tell(self._config, partition, reason)

    def _bounds(self, places: Collection[Partition]) -> Mapping[Partition, tuple[int, int]]:
        """The first offset of each place and the end of what can be read, which holds all that was there at first."""
        if not places:
            return {}
        now_s = time.monotonic()
        new = [place for place in places if place not in self._marks]
        if new:
            ends = self._watch.high_watermarks(new)
            self._marks.update((place, _Mark(ends[place], now_s)) for place in new)
        lows, stable = self._watch.beginnings(places), self._watch.last_offsets(places)
        if unsettled := [place for place in places if stable[place] < self._marks[place].end]:
            raise self._unsettled(unsettled, now_s)
        return {place: (lows[place], stable[place]) for place in places}

    def _unsettled(self, places: Collection[Partition], now_s: float) -> UnsettledOutputs:
        """The error while transactions are open. Raises SettingsError if one of them has been for too long."""
        oldest = min(places, key=lambda place: self._marks[place].since_s)
        open_s = now_s - self._marks[oldest].since_s
        partitions = frozenset(Partition(self._config.input_topic, place.number) for place in places)
        if open_s > OPEN_S:
            reason = (
                f"a transaction of another producer in '{oldest.topic}', partition {oldest.number}, has been open for more "
                f"than {open_s:.0f} s and hides what is behind it (kafka-transactions find-hanging, abort)"
            )
            raise cannot_tell(self._config, Partition(self._config.input_topic, oldest.number), reason)
        message = (
            f"a transaction is open in {names_of(sorted(places))} and hides newer outputs: {names_of(sorted(partitions))} "
            f"cannot resume before it ends ({open_s:.0f} of {OPEN_S:g} s)"
        )
        return UnsettledOutputs(message, partitions)

    def _check(self, found: Mapping[Partition, int], doubtful: Mapping[Partition, str]) -> None:
        """Raise SettingsError for an output of an earlier topic, or if compaction may have removed the newest output."""
        ends = self._watch.last_offsets([*found.keys() | doubtful.keys()]) if found or doubtful else {}
        for partition, offset in found.items():
            # Nothing else shows it to a worker that knows no topic ids.
            if offset > ends[partition]:
                reason = f"its newest output is of offset {offset - 1}, and the topic ends at {ends[partition]}"
                raise cannot_tell(self._config, partition, reason)
        # At the end of the input there is nothing left that could have an output.
        doubtful = {
            partition: topic for partition, topic in doubtful.items() if found.get(partition, 0) < ends[partition]
        }
        compacted = {topic: self._is_compacted(topic) for topic in sorted(set(doubtful.values()))}
        for partition, topic in doubtful.items():
            if compacted[topic]:
                reason = f"'{topic}' is compacted, and behind its newest output are offsets without a record"
                raise cannot_tell(self._config, partition, reason)

    def _is_compacted(self, topic: str) -> bool:
        """Whether the broker removes single records of the topic. Raises BrokerError if it may not be asked."""
        with mapping_errors(f"asking for the settings of '{topic}'", self._watch.client_errors, self._watch.client):
            settings = settings_of(self._watch.client, topic, self._config.request_timeout_s)
        if settings is None:
            message = (
                f"the group '{self._config.group_id}' has no committed offsets, and behind its newest output in '{topic}' "
                "are offsets without a record, which mean nothing unless the topic is compacted: allow this worker "
                f"DESCRIBE_CONFIGS on the topic '{topic}', or say where to begin with kafka.start=beginning or "
                "kafka.start=end"
            )
            raise BrokerError(message)
        return "compact" in settings.get("cleanup.policy", "")


def cannot_tell(config: KafkaConfig, partition: Partition, reason: str) -> SettingsError:
    """The error for a partition without a committed offset whose outputs do not show where to resume."""
    name, group = f"{partition.topic}:{partition.number}", config.group_id
    return SettingsError(
        f"the group '{group}' has no committed offset for partition {name}, and its outputs do not show where to resume: "
        f"{reason}. Guessing would lose or duplicate articles. Either set the offset yourself "
        f"(kafka-consumer-groups --group {group} --topic {name} --reset-offsets --to-offset N --execute), or read "
        "everything again with kafka.start=beginning, or only what is published from now on with kafka.start=end"
    )


_Steps = Generator[None, None, Mapping[int, _Newest]]


class _Tail:
    """Reads the ends of all partitions of one topic, at once."""

    def __init__(self, config: KafkaConfig, topic: str) -> None:
        self._config = config
        self._topic = topic
        self._client_errors = ClientErrors(config)
        self.look = Deadline(0.0)
        """Replaced before each look."""
        self.records = 0
        """How many were read."""
        self._reader = PartitionReader(config.consumer() | {"auto.offset.reset": "earliest"}, self._client_errors)

    def close(self) -> None:
        self._reader.close()

    def newest(self, bounds: Mapping[Partition, tuple[int, int]], input_topic: str) -> _Steps:
        """The newest output of each input partition, by its number; reads backwards in growing steps.

        A generator: it yields whenever the `look` is over, and returns the result.
        """
        found: dict[int, tuple[int, _Source]] = {}
        records: Counter[int] = Counter()
        """Behind the newest output; while it is not found, all that were read."""
        until, offsets = {place: end for place, (_low, end) in bounds.items()}, _FIRST_LOOK
        while until:
            starts = {place: max(bounds[place][0], end - offsets) for place, end in until.items()}
            later = records.copy()
            for message in self._records(starts, until):
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
                if place.number not in found and start > bounds[place][0]
            }
            offsets *= _WIDEN
        newest: dict[int, _Newest] = {}
        for place, (low, end) in bounds.items():
            at, of = found.get(place.number, (low - 1, None))
            newest[place.number] = _Newest(of, end - at - 1 - records[place.number])
        return newest

    def _records(self, starts: Mapping[Partition, int], until: Mapping[Partition, int]) -> Iterator[Message | None]:
        """The records from `starts` until `until`, each partition in order. None: pause here."""
        ranges = {place.number: (start, until[place]) for place, start in starts.items()}
        with mapping_errors(f"reading the end of '{self._topic}'", self._client_errors):
            for message in self._reader.read(self._topic, ranges, self._refuse_missing_right, limit=1_000):
                if message is None:
                    if self._reader.left and self.look.over:
                        yield None
                elif message.error() is None:
                    yield message
                else:  # the end of the partition, which may have moved back since it was asked for
                    self._reader.finish(message.partition() or 0)

    def _refuse_missing_right(self, error: KafkaError) -> bool:
        """Raise BrokerError for a missing right. Any other error passes, or the search ends at its bound."""
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            message = (
                f"the group '{self._config.group_id}' has no committed offsets, and only '{self._topic}' shows where to "
                f"resume: allow this worker READ on the topic '{self._topic}', or say where to begin with "
                "kafka.start=beginning or kafka.start=end"
            )
            raise BrokerError(message)
        return False


@dataclass(slots=True)
class _Search:
    """A search in one topic. `looked_s`: how long it has read so far. `newest`: its result, once it is over."""

    tail: _Tail
    steps: _Steps
    places: frozenset[Partition]
    looked_s: float = 0.0
    newest: Mapping[int, _Newest] | None = None

    def close(self) -> None:
        """Close its client, unless the search is over."""
        if self.newest is None:
            self.tail.close()


def _source_of(headers: Headers, partition: Partition) -> _Source | None:
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
    return _Source(int(offset), topic_id.decode() if topic_id else None)
