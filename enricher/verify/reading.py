"""Reads ranges of topics with a plain consumer that is assigned, joins nothing and commits nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from enricher.errors import BrokerError
from enricher.kafka.asking import ClientLog, Complaint, asking, silenced
from enricher.kafka.border import constructing, mapped
from enricher.kafka.client import KafkaConfig

Ranges = Mapping[int, tuple[int, int]]
"""Per partition the half-open range of offsets to read."""

Progress = Callable[[str, int, int], None]
"""Hears what is done, how many offsets of it are done, and how many there are."""

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
        isolation = "read_committed" if committed_only else "read_uncommitted"
        own = {"group.id": config.group_id, "isolation.level": isolation, **_PROPERTIES}
        with constructing():
            properties = silenced(config.client("consumer") | own, self._complaint)
            self._consumer = Consumer(properties, logger=ClientLog().logger)

    def read(self, topic: str, ranges: Ranges, doing: str) -> Iterator[Message]:
        """The records in `ranges`, those of a partition in its order. Raises BrokerError."""
        left = {number: bounds for number, bounds in ranges.items() if bounds[0] < bounds[1]}
        if not left:
            return
        reading = _Reading(doing, left, self._progress)
        with asking(self._consumer, doing, self._complaint):
            self._consumer.assign([TopicPartition(topic, number, start) for number, (start, _) in left.items()])
            while reading.left:
                messages = self._consumer.consume(_AT_ONCE, _WAIT_S)
                for message in messages:
                    if self._is_record(message, doing) and reading.wants(message):
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

    def _rest(self, topic: str, number: int | None) -> None:
        """No more of a partition that is read to its end: a live topic has ever more."""
        if number is not None:
            self._consumer.pause([TopicPartition(topic, number)])


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
        self._positions[number] = offset + (error is None)
        if self._positions[number] < self.left[number][1]:
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
