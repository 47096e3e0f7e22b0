"""In-flight tickets per partition: release in offset order, forget on trouble.

Why outputs are held back: batches finish in any order. If the output of offset 10 were published in a transaction that
commits offset 6, a restart would publish 10 again, though every transaction was atomic. So a release holds exactly the
outputs of `[committed, committable)`, in offset order. Offsets may have gaps (compaction, transaction markers); they are
queued as delivered and never assumed to be +1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from enricher.records import Partition, Release, Ticket


def names_of(partitions: Sequence[Partition]) -> str:
    """For people, e.g. `articles 0 1 2`."""
    numbers: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        numbers.setdefault(topic, []).append(number)
    return ", ".join(f"{topic} {' '.join(map(str, numbers[topic]))}" for topic in numbers) or "none"


@dataclass(slots=True)
class _PartitionQueue:
    """What is in flight of one partition, oldest first, and the committable offset last released."""

    tickets: deque[Ticket] = field(default_factory=deque)
    last_offset: int | None = None
    released: int | None = None
    last_timestamp_s: float | None = None
    """Of the record that was delivered last, whatever became of it."""


class OffsetTracker:
    """Owns the tickets between arrival and release."""

    def __init__(self) -> None:
        self._queues: dict[Partition, _PartitionQueue] = {}
        self.in_flight = 0
        self.in_flight_bytes = 0

    @property
    def partitions(self) -> Collection[Partition]:
        """The partitions that are ours."""
        return self._queues.keys()

    def assign(self, partitions: Iterable[Partition]) -> None:
        """Take charge of partitions. One that we still had starts afresh: it was lost and came back."""
        for partition in partitions:
            self.forget([partition])
            self._queues[partition] = _PartitionQueue()

    def unassign(self, partitions: Collection[Partition]) -> int:
        """Give partitions up; returns how many unpublished tickets were forgotten."""
        forgotten = self.forget(partitions)
        for partition in partitions:
            self._queues.pop(partition, None)
        return forgotten

    def track(self, ticket: Ticket) -> None:
        """Put a ticket in flight, in the order of delivery."""
        raw = ticket.raw
        queue, offset = self._queues[raw.partition], raw.offset
        assert queue.last_offset is None or offset > queue.last_offset, "offsets of a partition only grow"
        assert queue.released is None or offset >= queue.released, "what is committed does not come again"
        queue.last_offset, queue.last_timestamp_s = offset, raw.timestamp_s
        queue.tickets.append(ticket)
        self.in_flight += 1
        self.in_flight_bytes += raw.size_bytes

    def forget(self, partitions: Collection[Partition] | None = None) -> int:
        """Drop all that is in flight of these partitions (None: of all); late results for it will land nowhere.

        Returns how many tickets were forgotten. The next ticket may have any offset again.
        """
        forgotten = 0
        for partition in list(self._queues) if partitions is None else partitions:
            queue = self._queues.get(partition)
            if queue is None:
                continue
            for ticket in queue.tickets:
                ticket.forgotten = True
                self._landed(ticket)
            forgotten += len(queue.tickets)
            self._queues[partition] = _PartitionQueue()
        return forgotten

    def held_back(self) -> int:
        """How many are finished, but stand behind one that is not. Looks at every ticket."""
        return sum(ticket.outcome is not None for queue in self._queues.values() for ticket in queue.tickets)

    def committable(self) -> dict[Partition, int]:
        """Where each partition stands: what was released last, or else its first record in flight. From any thread."""
        standing: dict[Partition, int] = {}
        for partition, queue in list(self._queues.items()):
            if queue.released is not None:
                standing[partition] = queue.released
            elif queue.tickets:
                with suppress(IndexError):  # the loop has just taken it
                    standing[partition] = queue.tickets[0].raw.offset
        return standing

    def oldest_timestamp_s(self, behind: Collection[Partition] = ()) -> float | None:
        """When the oldest unprocessed record was published, as far as is known: the head of a partition is its oldest.

        Of partitions that are `behind`, though nothing of theirs is in flight, the next record is younger than the last
        one was, so that one counts. May be asked from any thread.
        """
        oldest: list[float | None] = []
        for partition, queue in list(self._queues.items()):
            try:
                oldest.append(queue.tickets[0].raw.timestamp_s)
            except IndexError:
                oldest.append(queue.last_timestamp_s if partition in behind else None)
        return min((timestamp_s for timestamp_s in oldest if timestamp_s is not None), default=None)

    def oldest_untimed_s(self) -> float | None:
        """When the oldest head of a partition that has no time of its own arrived here, by the worker's clock.

        It is older than that. May be asked from any thread.
        """
        arrived: list[float] = []
        for queue in list(self._queues.values()):
            with suppress(IndexError):
                if queue.tickets[0].raw.timestamp_s is None:
                    arrived.append(queue.tickets[0].arrived_s)
        return min(arrived, default=None)

    def idle(self) -> list[Partition]:
        """Partitions of which nothing is in flight: their position may be committed as it stands."""
        return [partition for partition, queue in self._queues.items() if not queue.tickets]

    def release(self, positions: Mapping[Partition, int]) -> Release:
        """Hand over the finished tickets at the head of each partition.

        `positions` are the consumer's, asked for the `idle` partitions: where nothing is in flight, everything below the
        position has been dealt with, markers included. The tickets are no longer in flight afterwards; if publishing
        them fails, the caller forgets the rest and rewinds.
        """
        tickets: list[Ticket] = []
        committable: dict[Partition, int] = {}
        for partition, queue in self._queues.items():
            offset = self._release_queue(queue, tickets)
            if offset is None and not queue.tickets:
                offset = positions.get(partition)
            if offset is not None and offset != queue.released:
                assert queue.released is None or offset > queue.released, "committable offsets only grow"
                committable[partition] = queue.released = offset
        return Release(tickets, committable)

    def _release_queue(self, queue: _PartitionQueue, into: list[Ticket]) -> int | None:
        offset = None
        while queue.tickets and queue.tickets[0].outcome is not None:
            ticket = queue.tickets.popleft()
            self._landed(ticket)
            into.append(ticket)
            offset = ticket.raw.offset + 1
        return offset

    def _landed(self, ticket: Ticket) -> None:
        self.in_flight -= 1
        self.in_flight_bytes -= ticket.raw.size_bytes

    def publishable(self) -> bool:
        """True where at least one ticket is ready to be released."""
        return any(queue.tickets and queue.tickets[0].outcome is not None for queue in self._queues.values())

    def unfinished(self) -> bool:
        """True where an outcome is still missing."""
        return any(ticket.outcome is None for queue in self._queues.values() for ticket in queue.tickets)
