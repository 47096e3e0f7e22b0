"""Where the group stood, read from what it wrote: for partitions whose committed offset is gone.

Every output names its input's partition and offset and was committed with it, and the outputs of one partition are in the
order of the offsets. So the newest output of a partition, or its newest dead letter if that is newer, says where to go on.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Self

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from enricher.errors import BrokerError, SettingsError, TransactionTrouble
from enricher.kafka.client import KafkaConfig, LastWord
from enricher.kafka.errors import border, constructing
from enricher.kafka.metadata import headers_of
from enricher.kafka.topicwatch import TopicWatch
from enricher.records import Headers, Partition

_FIRST_LOOK = 64  # records from the end; nearly always the very last one is ours
_WIDEN = 16
_LOOK_S = 20.0
"""For all partitions together: the loop waits meanwhile, and its watchdog is at 60 s."""
_END = KafkaError._PARTITION_EOF  # noqa: SLF001  the client's name
_SOURCES = ("enricher.source", "enricher.dlq.source")


@dataclass(frozen=True, slots=True)
class _Source:
    """The input that an output names."""

    offset: int
    topic_id: str | None


class OutputTails:
    """Reads the ends of the output topic and of the dead-letter topic. Commits nothing and joins no group."""

    def __init__(self, config: KafkaConfig, watch: TopicWatch) -> None:
        self._config = config
        self._watch = watch

    def next_offsets(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """The offset behind the newest input with an output, of each partition; without those that never had one.

        Blocks for some seconds at most. Raises SettingsError where the outputs cannot tell, BrokerError where they may not
        be read, TransactionTrouble where they do not answer.
        """
        found: dict[Partition, int] = {}
        for topic in (self._config.output_topic, self._config.dead_letter_topic):
            for partition, source in self._newest(topic, partitions).items():
                if source.topic_id in {None, self._watch.topic_id}:
                    found[partition] = max(found.get(partition, 0), source.offset + 1)
        # What was found out counts for the topic that was asked about: it may be another one by now.
        self._watch.ask()
        self._watch.confirm()
        self._check(found)
        return found

    def _newest(self, topic: str, partitions: Collection[Partition]) -> Mapping[Partition, _Source]:
        """The newest output of each partition in one topic."""
        # Outputs go to the input's partition where there is one, as there is for these.
        bounds = self._bounds([Partition(topic, partition.number) for partition in partitions])
        # Where nothing was ever written, not even a marker, there is nothing to look at.
        written = {place: (low, end) for place, (low, end) in bounds.items() if end > 0}
        with _Tail(self._config, topic) as tail:
            found = tail.newest(written, self._config.input_topic)
        for place, (low, _end) in written.items():
            if place.number not in found and low > 0:
                partition = Partition(self._config.input_topic, place.number)
                raise cannot_tell(self._config, partition, f"what '{topic}' held of it was deleted")
        return {partition: found[partition.number] for partition in partitions if partition.number in found}

    def _bounds(self, places: Collection[Partition]) -> Mapping[Partition, tuple[int, int]]:
        if not places:
            return {}
        lows, ends = self._watch.beginnings(places), self._watch.last_offsets(places)
        return {place: (lows[place], ends[place]) for place in places}

    def _check(self, found: Mapping[Partition, int]) -> None:
        """Outputs of offsets that the input has not reached belong to an earlier topic, which nothing else tells."""
        ends = self._watch.last_offsets(list(found)) if found else {}
        for partition, offset in found.items():
            if offset > ends[partition]:
                reason = f"its newest output is of offset {offset - 1}, and the topic ends at {ends[partition]}"
                raise cannot_tell(self._config, partition, reason)


def cannot_tell(config: KafkaConfig, partition: Partition, reason: str) -> SettingsError:
    """The error of a partition without a committed offset, of which the outputs do not say where the group stood."""
    name, group = f"{partition.topic}:{partition.number}", config.group_id
    return SettingsError(
        f"the group '{group}' has no committed offset for partition {name}, and the outputs cannot tell where it stood: "
        f"{reason}. To guess would lose articles or double them. The ways on: set the offset yourself "
        f"(kafka-consumer-groups --group {group} --topic {name} --reset-offsets --to-offset N --execute), or read "
        "everything once more with kafka.start=beginning, or only what is published from now on with kafka.start=end"
    )


class _Tail:
    """A consumer that looks at the ends of the partitions of one topic, all at once."""

    def __init__(self, config: KafkaConfig, topic: str) -> None:
        self._config = config
        self._topic = topic
        self._last_word = LastWord(config)
        self._give_up_s = time.monotonic() + _LOOK_S
        self._consumer: Consumer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._consumer:
            self._consumer.close()

    def newest(self, bounds: Mapping[Partition, tuple[int, int]], input_topic: str) -> Mapping[int, _Source]:
        """The newest output of each input partition, by its number; looks at more and more of a partition, the end first."""
        found: dict[int, _Source] = {}
        until, look = {place: end for place, (_low, end) in bounds.items()}, _FIRST_LOOK
        while until:
            starts = {place: max(bounds[place][0], end - look) for place, end in until.items()}
            for message in self._records(starts, until):
                number = message.partition() or 0
                if source := _source_of(headers_of(message), Partition(input_topic, number)):
                    found[number] = source
            until = {
                place: start
                for place, start in starts.items()
                if place.number not in found and start > bounds[place][0]
            }
            look *= _WIDEN
        return found

    def _records(self, starts: Mapping[Partition, int], until: Mapping[Partition, int]) -> Iterator[Message]:
        """The records from `starts` on, each partition in order; a few beyond `until` may be among them."""
        with border(f"reading the end of '{self._topic}'", self._last_word):
            consumer, left = self._connected(), {place.number for place in starts}
            consumer.assign([TopicPartition(place.topic, place.number, start) for place, start in starts.items()])
            while left:
                for message in consumer.consume(1_000, 0.05):
                    error, number, offset = message.error(), message.partition() or 0, message.offset() or 0
                    if error is None:
                        yield message
                    elif error.code() != _END:
                        self._complain(error)
                        continue
                    if error or offset + 1 >= until[Partition(self._topic, number)]:
                        left.discard(number)
                self._check_time()

    def _connected(self) -> Consumer:
        if self._consumer is None:
            properties = self._config.consumer() | {"error_cb": self._last_word, "auto.offset.reset": "earliest"}
            with constructing():
                self._consumer = Consumer(properties, logger=self._last_word.logger)
        return self._consumer

    def _complain(self, error: KafkaError) -> None:
        if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
            message = (
                f"the group '{self._config.group_id}' has no committed offsets, and where it stood can be read from "
                f"'{self._topic}' only: give this worker READ on the topic '{self._topic}', or say where to begin with "
                "kafka.start=beginning or kafka.start=end"
            )
            raise BrokerError(message)

    def _check_time(self) -> None:
        if time.monotonic() > self._give_up_s:
            message = f"reading the end of '{self._topic}' took longer than {_LOOK_S:g} s"
            raise TransactionTrouble(message)


def _source_of(headers: Headers, partition: Partition) -> _Source | None:
    """The input that these headers name, if it is of `partition`. Ours come last, so the last of a name counts."""
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
