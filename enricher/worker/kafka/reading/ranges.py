"""Reads ranges of offsets, and passes over batches that no client can unpack."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from confluent_kafka import Message

from enricher.errors import BrokerError
from enricher.worker.kafka.reading.unreadable import UnreadableBatches
from enricher.worker.kafka.shared.client import KafkaConfig
from enricher.worker.kafka.shared.client_errors import Complaint
from enricher.worker.kafka.shared.errors import UNREADABLE, broker_errors
from enricher.worker.kafka.shared.lone_consumers import lone_reader, may_pass
from enricher.worker.kafka.shared.partition_reader import POLL_S, Ranges
from enricher.worker.records import Partition
from enricher.worker.runtime.deadlines import Deadline

Progress = Callable[[str, int, int], None]
"""Called with the current step, the number of offsets done, and their total."""

Unread = Callable[[int, range], None]
"""Called with a partition and its offsets that are in a batch which the client cannot unpack."""

_SILENCE_S = 15.0
_CLIENTS = 4
"""Together they wait longer than a cluster takes to elect leaders. One client that has lost the leader of a partition, for
example while its broker restarted, may never find it again (librdkafka 4898), so another one goes on."""


class RangeReader:
    """Delivers the records of ranges: the committed ones only, or those of aborted transactions too."""

    def __init__(self, config: KafkaConfig, *, committed_only: bool, progress: Progress) -> None:
        isolation = "read_committed" if committed_only else "read_uncommitted"
        self._complaint = Complaint()
        self._connect = partial(lone_reader, config, self._complaint, {"isolation.level": isolation})
        self._reader = self._connect()
        self._progress = progress
        self._unreadable = UnreadableBatches(config)
        self.left: Mapping[int, int] = {}
        """The end of each partition that was not reached when `read` ended."""

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()

    def read(
        self,
        topic: str,
        ranges: Ranges,
        doing: str,
        unread: Unread | None = None,
        *,
        deadline: Deadline | None = None,
    ) -> Iterator[Message]:
        """The records in `ranges`, each partition in order, until the deadline. Raises BrokerError.

        Without `unread`, a batch that cannot be unpacked is an error. What is not read at the deadline is in `left`.
        """
        rest, clients = dict(ranges), 0
        while clients < _CLIENTS:
            report = partial(self._report, doing, ranges)
            yield from self._read_until_silent(topic, rest, doing, unread, deadline, report)
            before, reader = rest, self._reader
            rest = {number: (reader.positions[number], end) for number, end in reader.left.items()}
            self.left = dict(reader.left)
            if not rest:
                return
            # A client that did not get there in time may be one that never will.
            reader.close()
            self._reader = self._connect()
            if deadline and deadline.over:
                return
            clients = clients + 1 if rest == before else 1
        raise BrokerError(f"{doing}: nothing came for {_CLIENTS * _SILENCE_S:.0f} s")

    def _read_until_silent(
        self,
        topic: str,
        ranges: Ranges,
        doing: str,
        unread: Unread | None,
        deadline: Deadline | None,
        report: Callable[[], None],
    ) -> Iterator[Message]:
        """Read with one client. Bounds the silence between two answers by counting polls, not by the clock.

        The caller may take long over one record.
        """
        reader, silent_s, came = self._reader, 0.0, False
        judge = partial(may_pass, taken={UNREADABLE} if unread else ())
        with broker_errors(reader.consumer, doing, self._complaint):
            for message in reader.read(topic, ranges, judge, deadline=deadline):
                if message is None:
                    report()
                    silent_s, came = 0.0 if came else silent_s + POLL_S, False
                    if silent_s > _SILENCE_S:
                        return
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
        done = sum(
            min(positions.get(number, end), end) - start for number, (start, end) in ranges.items() if start < end
        )
        total = sum(end - start for start, end in ranges.values() if start < end)
        self._progress(doing, done, total)
