"""Reads ranges of offsets, and passes over batches that no client can unpack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from confluent_kafka import Message

from enricher.errors import BrokerError
from enricher.operate.inspect.consumer import lone_reader, may_pass
from enricher.worker.kafka.reading.unreadable import UNREADABLE, UnreadableBatches
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.kafka.shared.client_errors import Complaint
from enricher.worker.kafka.shared.errors import broker_errors
from enricher.worker.kafka.shared.partition_reader import POLL_S, Ranges
from enricher.worker.records import Partition

Progress = Callable[[str, int, int], None]
"""Called with the current step, the number of offsets done, and their total."""

Unread = Callable[[int, range], None]
"""Called with a partition and its offsets that are in a batch which the client cannot unpack."""

_SILENCE_S = 60.0  # longer than a cluster takes to elect leaders


class RangeReader:
    """Delivers the records of ranges: the committed ones only, or those of aborted transactions too."""

    def __init__(self, config: KafkaConfig, *, committed_only: bool, progress: Progress) -> None:
        isolation = "read_committed" if committed_only else "read_uncommitted"
        self._complaint = Complaint()
        self._reader = lone_reader(config, self._complaint, {"isolation.level": isolation})
        self._progress = progress
        self._unreadable = UnreadableBatches(config)

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()

    def read(self, topic: str, ranges: Ranges, doing: str, unread: Unread | None = None) -> Iterator[Message]:
        """The records in `ranges`, each partition in order. Raises BrokerError.

        Without `unread`, a batch that cannot be unpacked is an error. Bounds the silence between two answers by counting
        polls instead of by the clock: the caller may take long over one record.
        """
        reader, silent_s, came = self._reader, 0.0, False
        judge = partial(may_pass, taken={UNREADABLE} if unread else ())
        with broker_errors(reader.consumer, doing, self._complaint):
            for message in reader.read(topic, ranges, judge):
                if message is None:
                    self._report(doing, ranges)
                    silent_s, came = 0.0 if came else silent_s + POLL_S, False
                    if silent_s > _SILENCE_S:
                        raise BrokerError(f"{doing}: nothing came for {_SILENCE_S:.0f} s")
                    continue
                came, error, number = True, message.error(), message.partition() or 0
                if error is None:
                    yield message
                elif unread and error.code() == UNREADABLE:
                    place, begins = Partition(topic, number), message.offset() or 0
                    span = self._unreadable.span(place, reader.positions[number], error, begins)
                    unread(number, span)
                    reader.skip_to(number, span.stop)

    def _report(self, doing: str, ranges: Ranges) -> None:
        positions = self._reader.positions
        done = sum(min(positions[number], end) - start for number, (start, end) in ranges.items() if start < end)
        total = sum(end - start for start, end in ranges.values() if start < end)
        self._progress(doing, done, total)
