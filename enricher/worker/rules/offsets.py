"""In-flight tickets per partition: release in offset order, forget on trouble.

Outputs are held back because batches finish in any order. If the output of offset 10 were published in a transaction that
commits offset 6, a restart would publish 10 again, although every transaction was atomic. So a release holds exactly the
outputs of `[committed, committable)`, in offset order. Offsets may have gaps (compaction, transaction markers); they are
queued as delivered and never assumed to be consecutive.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from enricher.worker.records import Partition, Release, Ticket


def names_of(partitions: Sequence[Partition]) -> str:
    """Partitions for log lines, for example `articles 0 1 2`."""
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        numbers.setdefault(topic, []).append(number)
    return ", ".join(f"{topic} {' '.join(map(str, numbers[topic]))}" for topic in numbers) or "none"


@dataclass(slots=True)
class _PartitionQueue:
    """The tickets of one partition in flight, oldest first. `released`: the last committable offset."""

    tickets: deque[Ticket] = field(default_factory=deque)
    last_offset: int | None = None
    released: int | None = None
    last_timestamp_s: float | None = None
    """The timestamp of the last delivered record, in flight or not."""


class OffsetTracker:
    """Owns the tickets between arrival and release."""

    def __init__(self) -> None:
        self._queues: dict[Partition, _PartitionQueue] = {}
        self.in_flight = 0
        self.in_flight_bytes = 0
        """Bytes of the records in flight, and of their articles beyond the records."""
        self.unpacked_bytes = 0
        """Bytes that the articles in flight take beyond their records."""

    @property
    def partitions(self) -> Collection[Partition]:
        """The assigned partitions."""
        return self._queues.keys()

    def assign(self, partitions: Iterable[Partition]) -> None:
        """Add partitions. A partition that is still here was lost and came back; its tickets are forgotten."""
        for partition in partitions:
            self.forget([partition])
            self._queues[partition] = _PartitionQueue()

    def unassign(self, partitions: Collection[Partition]) -> int:
        """Remove partitions; returns how many unpublished tickets were forgotten."""
        forgotten = self.forget(partitions)
        for partition in partitions:
            self._queues.pop(partition, None)
        return forgotten

    def track(self, ticket: Ticket) -> None:
        """Add a ticket in flight, in the order of delivery."""
        raw = ticket.raw
        queue, offset = self._queues[raw.partition], raw.offset
        assert queue.last_offset is None or offset > queue.last_offset, "offsets of a partition only increase"
        assert queue.released is None or offset >= queue.released, "a committed record is not delivered again"
        queue.last_offset, queue.last_timestamp_s = offset, raw.timestamp_s
        queue.tickets.append(ticket)
        self.in_flight += 1
        self.in_flight_bytes += raw.size_bytes

    def count_unpacked(self, size_bytes: int) -> None:
        """Count bytes that articles in flight take beyond their records (`Ticket.unpacked_bytes`)."""
        self.in_flight_bytes += size_bytes
        self.unpacked_bytes += size_bytes

    def is_next(self, ticket: Ticket) -> bool:
        """Whether a ticket in flight is the oldest of its partition, on which the release of all others depends."""
        queue = self._queues.get(ticket.raw.partition)
        return queue is not None and bool(queue.tickets) and queue.tickets[0] is ticket

    def forget(self, partitions: Collection[Partition] | None = None) -> int:
        """Forget the tickets of these partitions (None: of all); late results for them are dropped.

        Returns how many tickets were forgotten. The next ticket may have any offset.
        """
        forgotten = 0
        for partition in list(self._queues) if partitions is None else partitions:
            queue = self._queues.get(partition)
            if queue is None:
                continue
            for ticket in queue.tickets:
                ticket.forgotten = True
                self._remove_from_flight(ticket)
            forgotten += len(queue.tickets)
            self._queues[partition] = _PartitionQueue()
        return forgotten

    def held_back(self) -> int:
        """How many finished tickets are behind an unfinished ticket. Takes time linear in the tickets."""
        return sum(ticket.outcome is not None for queue in self._queues.values() for ticket in queue.tickets)

    def committable(self) -> dict[Partition, int]:
        """Each partition's last released offset, or else its first one in flight. Safe in any thread."""
        standing: dict[Partition, int] = {}
        for partition, queue, head in self._heads():
            if queue.released is not None:
                standing[partition] = queue.released
            elif head is not None:
                standing[partition] = head.raw.offset
        return standing

    def oldest_timestamp_s(self, behind: Collection[Partition] = ()) -> float | None:
        """When the oldest unprocessed record was published, where known: the head of each partition is its oldest.

        For partitions that are `behind` with nothing in flight, the last delivered record counts, because the next one is
        newer. Safe in any thread.
        """
        oldest = [
            head.raw.timestamp_s if head else queue.last_timestamp_s
            for partition, queue, head in self._heads()
            if head or partition in behind
        ]
        return min((timestamp_s for timestamp_s in oldest if timestamp_s is not None), default=None)

    def oldest_untimed_s(self) -> float | None:
        """When the oldest head without a timestamp arrived, by the worker's clock; the record is older than that.

        Safe in any thread.
        """
        heads = (head for _, _, head in self._heads() if head and head.raw.timestamp_s is None)
        return min((head.arrived_s for head in heads), default=None)

    def _heads(self) -> Iterator[tuple[Partition, _PartitionQueue, Ticket | None]]:
        """Each partition with its oldest ticket in flight. Safe in any thread."""
        for partition, queue in list(self._queues.items()):
            head = None
            with suppress(IndexError):  # nothing is in flight, or the loop has just released it
                head = queue.tickets[0]
            yield partition, queue, head

    def idle(self) -> list[Partition]:
        """Partitions with nothing in flight: their position may be committed."""
        return [partition for partition, queue in self._queues.items() if not queue.tickets]

    def release(self, positions: Mapping[Partition, int]) -> Release:
        """Hand over the finished tickets at the head of each partition.

        `positions` are the source's, for the `idle` partitions: with nothing in flight, everything below the position is
        processed, transaction markers included. The tickets are no longer in flight afterwards; if publishing them fails,
        the caller forgets the rest and rewinds.
        """
        tickets: list[Ticket] = []
        committable: dict[Partition, int] = {}
        for partition, queue in self._queues.items():
            offset = self._release_queue(queue, tickets)
            if offset is None and not queue.tickets:
                offset = positions.get(partition)
            if offset is not None and offset != queue.released:
                assert queue.released is None or offset > queue.released, "committable offsets only increase"
                committable[partition] = queue.released = offset
        return Release(tickets, committable)

    def _release_queue(self, queue: _PartitionQueue, into: list[Ticket]) -> int | None:
        offset = None
        while queue.tickets and queue.tickets[0].outcome is not None:
            ticket = queue.tickets.popleft()
            self._remove_from_flight(ticket)
            into.append(ticket)
            offset = ticket.raw.offset + 1
        return offset

    def _remove_from_flight(self, ticket: Ticket) -> None:
        self.in_flight -= 1
        self.in_flight_bytes -= ticket.raw.size_bytes + ticket.unpacked_bytes
        self.unpacked_bytes -= ticket.unpacked_bytes

    def publishable(self) -> bool:
        """True if at least one ticket can be released."""
        return any(queue.tickets and queue.tickets[0].outcome is not None for queue in self._queues.values())

    def count_unfinished(self, partitions: Iterable[Partition] | None = None) -> int:
        """How many tickets of these partitions (None: of all) have no outcome yet. Takes time linear in the tickets."""
        queues = [self._queues[each] for each in (self._queues if partitions is None else partitions)]
        return sum(ticket.outcome is None for queue in queues for ticket in queue.tickets)
