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
class _Lane:
    """What is in flight of one partition, oldest first, and the committable offset last released."""

    tickets: deque[Ticket] = field(default_factory=deque)
    last_offset: int | None = None
    released: int | None = None
    last_timestamp_s: float | None = None
    """Of the record that was delivered last, whatever became of it."""


class OffsetTracker:
    """Owns the tickets between arrival and release."""

    def __init__(self) -> None:
        self._lanes: dict[Partition, _Lane] = {}
        self.in_flight = 0
        self.in_flight_bytes = 0

    @property
    def partitions(self) -> Collection[Partition]:
        """The partitions that are ours."""
        return self._lanes.keys()

    def assign(self, partitions: Iterable[Partition]) -> None:
        """Take charge of partitions. One that we still had starts afresh: it was lost and came back."""
        for partition in partitions:
            self.forget([partition])
            self._lanes[partition] = _Lane()

    def unassign(self, partitions: Collection[Partition]) -> int:
        """Give partitions up; returns how many unpublished tickets were forgotten."""
        forgotten = self.forget(partitions)
        for partition in partitions:
            self._lanes.pop(partition, None)
        return forgotten

    def track(self, ticket: Ticket) -> None:
        """Put a ticket in flight, in the order of delivery."""
        raw = ticket.raw
        lane, offset = self._lanes[raw.partition], raw.offset
        assert lane.last_offset is None or offset > lane.last_offset, "offsets of a partition only grow"
        assert lane.released is None or offset >= lane.released, "what is committed does not come again"
        lane.last_offset, lane.last_timestamp_s = offset, raw.timestamp_s
        lane.tickets.append(ticket)
        self.in_flight += 1
        self.in_flight_bytes += raw.size_bytes

    def forget(self, partitions: Collection[Partition] | None = None) -> int:
        """Drop all that is in flight of these partitions (None: of all); late results for it will land nowhere.

        Returns how many tickets were forgotten. The next ticket may have any offset again.
        """
        forgotten = 0
        for partition in list(self._lanes) if partitions is None else partitions:
            lane = self._lanes.get(partition)
            if lane is None:
                continue
            for ticket in lane.tickets:
                ticket.forgotten = True
                self._landed(ticket)
            forgotten += len(lane.tickets)
            self._lanes[partition] = _Lane()
        return forgotten

    def held_back(self) -> int:
        """How many are finished, but stand behind one that is not. Looks at every ticket."""
        return sum(ticket.outcome is not None for lane in self._lanes.values() for ticket in lane.tickets)

    def committable(self) -> dict[Partition, int]:
        """Where each partition stands: what was released last, or else its first record in flight. From any thread."""
        standing: dict[Partition, int] = {}
        for partition, lane in list(self._lanes.items()):
            if lane.released is not None:
                standing[partition] = lane.released
            elif lane.tickets:
                with suppress(IndexError):  # the loop has just taken it
                    standing[partition] = lane.tickets[0].raw.offset
        return standing

    def oldest_timestamp_s(self, behind: Collection[Partition] = ()) -> float | None:
        """When the oldest unprocessed record was published, as far as is known: the head of a partition is its oldest.

        Of partitions that are `behind`, though nothing of theirs is in flight, the next record is younger than the last
        one was, so that one counts. May be asked from any thread.
        """
        oldest: list[float | None] = []
        for partition, lane in list(self._lanes.items()):
            try:
                oldest.append(lane.tickets[0].raw.timestamp_s)
            except IndexError:
                oldest.append(lane.last_timestamp_s if partition in behind else None)
        return min((timestamp_s for timestamp_s in oldest if timestamp_s is not None), default=None)

    def oldest_untimed_s(self) -> float | None:
        """When the oldest head of a partition that has no time of its own arrived here, by the worker's clock.

        It is older than that. May be asked from any thread.
        """
        arrived: list[float] = []
        for lane in list(self._lanes.values()):
            with suppress(IndexError):
                if lane.tickets[0].raw.timestamp_s is None:
                    arrived.append(lane.tickets[0].arrived_s)
        return min(arrived, default=None)

    def idle(self) -> list[Partition]:
        """Partitions of which nothing is in flight: their position may be committed as it stands."""
        return [partition for partition, lane in self._lanes.items() if not lane.tickets]

    def release(self, positions: Mapping[Partition, int]) -> Release:
        """Hand over the finished tickets at the head of each partition.

        `positions` are the consumer's, asked for the `idle` partitions: where nothing is in flight, everything below the
        position has been dealt with, markers included. The tickets are no longer in flight afterwards; if publishing
        them fails, the caller forgets the rest and rewinds.
        """
        tickets: list[Ticket] = []
        committable: dict[Partition, int] = {}
        for partition, lane in self._lanes.items():
            offset = self._release_lane(lane, tickets)
            if offset is None and not lane.tickets:
                offset = positions.get(partition)
            if offset is not None and offset != lane.released:
                assert lane.released is None or offset > lane.released, "committable offsets only grow"
                committable[partition] = lane.released = offset
        return Release(tickets, committable)

    def _release_lane(self, lane: _Lane, into: list[Ticket]) -> int | None:
        offset = None
        while lane.tickets and lane.tickets[0].outcome is not None:
            ticket = lane.tickets.popleft()
            self._landed(ticket)
            into.append(ticket)
            offset = ticket.raw.offset + 1
        return offset

    def _landed(self, ticket: Ticket) -> None:
        self.in_flight -= 1
        self.in_flight_bytes -= ticket.raw.size_bytes

    def publishable(self) -> bool:
        """True where at least one ticket is ready to be released."""
        return any(lane.tickets and lane.tickets[0].outcome is not None for lane in self._lanes.values())

    def unfinished(self) -> bool:
        """True where an outcome is still missing."""
        return any(ticket.outcome is None for lane in self._lanes.values() for ticket in lane.tickets)
