"""Tickets whose records name a schema that is not here yet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Mapping

from enricher.worker.records import Partition, Ticket


class Pending:
    """Tickets by the reference of their schema, each with its place in the order of waiting."""

    def __init__(self) -> None:
        self._tickets: dict[Hashable, list[tuple[int, Ticket]]] = {}
        self._by_partition: dict[Partition, int] = {}
        self._count = 0
        self._next = 0

    def __len__(self) -> int:
        return self._count

    def add(self, reference: Hashable, ticket: Ticket) -> None:
        """Let a ticket wait."""
        self._tickets.setdefault(reference, []).append((self._next, ticket))
        self._next += 1
        self._count += 1
        self._by_partition[ticket.raw.partition] = self._by_partition.get(ticket.raw.partition, 0) + 1

    def by_partition(self) -> Mapping[Partition, int]:
        """How many tickets wait, per partition with any. Safe in any thread."""
        return self._by_partition.copy()

    def take(self, references: Collection[Hashable]) -> list[Ticket]:
        """Remove and return the tickets that wait for these, in the order in which they began to wait.

        Forgotten ones are left out.
        """
        found = [each for reference in references for each in self._tickets.pop(reference, ())]
        self._remove(found)
        return [ticket for _, ticket in sorted(found, key=lambda each: each[0]) if ticket.live]

    def drop_forgotten(self) -> list[Hashable]:
        """Drop forgotten tickets; returns the references for which none waits any more."""
        unwanted = []
        for reference, waiting in list(self._tickets.items()):
            left = [each for each in waiting if each[1].live]
            self._remove([each for each in waiting if not each[1].live])
            if left:
                self._tickets[reference] = left
            else:
                del self._tickets[reference]
                unwanted.append(reference)
        return unwanted

    def _remove(self, waiting: Collection[tuple[int, Ticket]]) -> None:
        self._count -= len(waiting)
        for partition, count in Counter(ticket.raw.partition for _, ticket in waiting).items():
            self._by_partition[partition] -= count
            if not self._by_partition[partition]:
                del self._by_partition[partition]
