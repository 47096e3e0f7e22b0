"""Reads ranges of offsets, and passes over batches that no client can unpack."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from confluent_kafka import Message, TopicPartition

from enricher.errors import BrokerError
from enricher.kafka.client import KafkaConfig
from enricher.kafka.inspect.consumer import END_OF_PARTITION, AssignedConsumer
from enricher.kafka.unreadable import UNREADABLE, UnreadableBatches
from enricher.records import Partition

Ranges = Mapping[int, tuple[int, int]]
"""Per partition the half-open range of offsets to read."""

Progress = Callable[[str, int, int], None]
"""Called with the current step, the number of offsets done, and their total."""

Unread = Callable[[int, range], None]
"""Called with a partition and its offsets that are in a batch which the client cannot unpack."""

_LIMIT = 500
_WAIT_S = 0.1
_SILENCE_S = 60.0  # longer than a cluster takes to elect leaders


class RangeReader(AssignedConsumer):
    """Delivers the records of ranges: the committed ones only, or those of aborted transactions too."""

    def __init__(self, config: KafkaConfig, *, committed_only: bool, progress: Progress) -> None:
        isolation = "read_committed" if committed_only else "read_uncommitted"
        super().__init__(config, properties={"isolation.level": isolation})
        self._progress = progress
        self._unreadable = UnreadableBatches(config)

    def read(self, topic: str, ranges: Ranges, doing: str, unread: Unread | None = None) -> Iterator[Message]:
        """The records in `ranges`, each partition in order. Raises BrokerError.

        Without `unread`, a batch that cannot be unpacked is an error.
        """
        left = {number: bounds for number, bounds in ranges.items() if bounds[0] < bounds[1]}
        if not left:
            return
        reading = _Reading(doing, left, self._progress)
        also = {UNREADABLE} if unread else set()
        self._assign(topic, {number: start for number, (start, _) in left.items()}, doing)
        while reading.left:
            messages = self._consume(_LIMIT, _WAIT_S)
            passed: set[int] = set()
            for message in messages:
                number, error = message.partition() or 0, message.error()
                # What the client had fetched before a seek repeats the batch that was passed.
                if number in passed or not self._is_answer(message, also) or number not in reading.left:
                    continue
                offset = message.offset() or 0
                if error is None and offset < reading.left[number][1]:
                    yield message
                # Transaction markers occupy offsets, so the end may lie behind the last record: the client reports it.
                if error is None or error.code() == END_OF_PARTITION:
                    reading.reached(number, offset + (error is None))
                elif unread:
                    place = Partition(topic, number)
                    with self._mapped():
                        span = self._unreadable.span(place, reading.positions[number], error, offset)
                    unread(number, span)
                    reading.reached(number, span.stop)
                    passed.add(number)
                    if number in reading.left:
                        with self._mapped():
                            self._consumer.seek(TopicPartition(topic, number, span.stop))
                if number not in reading.left:  # a live topic always has more
                    with self._mapped():
                        self._consumer.pause([TopicPartition(topic, number)])
            reading.report(silent=not messages)
        with self._mapped():
            self._consumer.unassign()


class _Reading:
    """How far one read is."""

    def __init__(self, doing: str, ranges: Ranges, progress: Progress) -> None:
        self.left = dict(ranges)
        self.positions = {number: start for number, (start, _) in ranges.items()}
        """The next offset to read of each partition."""
        self._doing = doing
        self._ranges = ranges
        self._progress = progress
        self._total = sum(end - start for start, end in ranges.values())
        self._silent_s = 0.0

    def reached(self, number: int, position: int) -> None:
        """Note the next offset of a partition, which is finished at the end of its range."""
        self.positions[number] = position
        if position >= self.left[number][1]:
            del self.left[number]

    def report(self, *, silent: bool) -> None:
        """Report progress. Counts waits instead of using the clock: the caller may take long over one record."""
        done = sum(min(self.positions[n], end) - start for n, (start, end) in self._ranges.items())
        self._progress(self._doing, done, self._total)
        self._silent_s = self._silent_s + _WAIT_S if silent else 0.0
        if self._silent_s > _SILENCE_S:
            raise BrokerError(f"{self._doing}: nothing came for {_SILENCE_S:.0f} s")
