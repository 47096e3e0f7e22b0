"""Reads ranges of topics with a plain consumer that is assigned, joins nothing and commits nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from enricher.errors import BrokerError
from enricher.kafka.asking import ClientLog, Complaint, asking, silenced
from enricher.kafka.client import KafkaConfig
from enricher.kafka.errors import constructing, mapped
from enricher.kafka.unreadable import UNREADABLE, UnreadableBatches
from enricher.records import Partition

Ranges = Mapping[int, tuple[int, int]]
"""Per partition the half-open range of offsets to read."""

Progress = Callable[[str, int, int], None]
"""Hears what is done, how many offsets of it are done, and how many there are."""

Unread = Callable[[int, range], None]
"""Hears of offsets of a partition that are in a batch which the client cannot unpack."""

_AT_ONCE = 500
_WAIT_S = 0.1
_SILENCE_S = 60.0  # longer than a cluster takes to elect leaders
_END_OF_PARTITION = KafkaError._PARTITION_EOF  # noqa: SLF001  the client's name
# The client looks for the group's coordinator although this consumer never joins: no right on the group is needed here.
_NOT_OUR_CONCERN = {KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.COORDINATOR_NOT_AVAILABLE}

_PROPERTIES: dict[str, Any] = {
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    # Where retention is faster than we read, go on with what is left.
    "auto.offset.reset": "earliest",
    # These count packed bytes, which may unpack to thirty thousand times as much: little at once.
    "fetch.message.max.bytes": 16_384,
    "fetch.max.bytes": 1_048_576,
    # 16 MiB per partition; an end is noticed when a fetch comes back empty, so that does not wait long.
    "queued.max.messages.kbytes": 16_384,
    "fetch.queue.backoff.ms": 20,
    "fetch.wait.max.ms": 50,
}


class RangeReader:
    """Delivers the records of ranges: the committed ones only, or those of aborted transactions too."""

    def __init__(self, config: KafkaConfig, *, committed_only: bool, progress: Progress) -> None:
        self._complaint = Complaint()
        self._progress = progress
        self._unreadable = UnreadableBatches(config)
        isolation = "read_committed" if committed_only else "read_uncommitted"
        own = {"group.id": config.group_id, "isolation.level": isolation, **_PROPERTIES}
        with constructing():
            properties = silenced(config.client("consumer") | own, self._complaint)
            self._consumer = Consumer(properties, logger=ClientLog().logger)

    def read(self, topic: str, ranges: Ranges, doing: str, unread: Unread | None = None) -> Iterator[Message]:
        """The records in `ranges`, those of a partition in its order. Raises BrokerError.

        `unread` hears of what cannot be read at all; without it that is an error.
        """
        left = {number: bounds for number, bounds in ranges.items() if bounds[0] < bounds[1]}
        if not left:
            return
        reading = _Reading(doing, left, self._progress)
        with asking(self._consumer, doing, self._complaint):
            self._consumer.assign([TopicPartition(topic, number, start) for number, (start, _) in left.items()])
            while reading.left:
                messages = self._consumer.consume(_AT_ONCE, _WAIT_S)
                passed: set[int | None] = set()
                for message in messages:
                    if message.partition() in passed:
                        continue  # from before the seek: the client meets the batch again and again
                    if unread and _is_unreadable(message):
                        self._pass(topic, message, reading, unread)
                        passed.add(message.partition())
                    elif self._is_record(message, doing) and reading.wants(message):
                        yield message
                    self._rest(topic, reading.finished(message))
                reading.report(silent=not messages)
            self._consumer.unassign()

    def close(self) -> None:
        """Let go of the connection."""
        self._consumer.close()

    def _is_record(self, message: Message, doing: str) -> bool:
        error = message.error()
        if error is None:
            return True
        if error.code() != _END_OF_PARTITION and error.code() not in _NOT_OUR_CONCERN:
            trouble = mapped(error, doing, self._complaint)
            if error.fatal() or not error.retriable():
                raise BrokerError(str(trouble))
        return False

    def _pass(self, topic: str, message: Message, reading: _Reading, unread: Unread) -> None:
        """Read on behind a batch that cannot be unpacked."""
        error, number = message.error(), message.partition() or 0
        assert error is not None
        if number not in reading.left:
            return
        place = Partition(topic, number)
        span = self._unreadable.span(place, reading.position(number), error, message.offset() or 0)
        unread(number, span)
        self._rest(topic, reading.reached(number, span.stop))
        if number in reading.left:
            self._consumer.seek(TopicPartition(topic, number, span.stop))

    def _rest(self, topic: str, number: int | None) -> None:
        """No more of a partition that is read to its end: a live topic has ever more."""
        if number is not None:
            self._consumer.pause([TopicPartition(topic, number)])


def _is_unreadable(message: Message) -> bool:
    error = message.error()
    return error is not None and error.code() == UNREADABLE


class _Reading:
    """How far one read is."""

    def __init__(self, doing: str, ranges: Ranges, progress: Progress) -> None:
        self.left = dict(ranges)
        self._doing = doing
        self._ranges = ranges
        self._progress = progress
        self._positions = {number: start for number, (start, _) in ranges.items()}
        self._total = sum(end - start for start, end in ranges.values())
        self._silent_s = 0.0

    def wants(self, message: Message) -> bool:
        bounds = self.left.get(message.partition() or 0)
        return bounds is not None and (message.offset() or 0) < bounds[1]

    def finished(self, message: Message) -> int | None:
        """Note a record or an end of partition; the partition, where that was the last of its range."""
        error = message.error()
        number, offset = message.partition() or 0, message.offset() or 0
        if number not in self.left or (error is not None and error.code() != _END_OF_PARTITION):
            return None
        # Transaction markers occupy offsets, so the end may lie behind the last record: then the client's word counts.
        return self.reached(number, offset + (error is None))

    def position(self, number: int) -> int:
        """The next offset to be read of a partition."""
        return self._positions[number]

    def reached(self, number: int, position: int) -> int | None:
        """Note where a partition stands; the partition, where that is the end of its range."""
        self._positions[number] = position
        if position < self.left[number][1]:
            return None
        del self.left[number]
        return number

    def report(self, *, silent: bool) -> None:
        """Tell how far it is. Counts the waits and not the clock: whoever takes the records may take long over one."""
        done = sum(min(self._positions[n], end) - start for n, (start, end) in self._ranges.items())
        self._progress(self._doing, done, self._total)
        self._silent_s = self._silent_s + _WAIT_S if silent else 0.0
        if self._silent_s > _SILENCE_S:
            raise BrokerError(f"{self._doing}: nothing came for {_SILENCE_S:.0f} s")
