"""How often processes ended at a committed offset, and what the next one does about it.

A record that kills the process (out of memory, a crash inside a library) kills every successor too. So an attempt is
counted beside the committed offset before the records behind it go on, and a commit that moves the offset forward begins
again at zero. After `max_deaths` attempts the partition is suspect: while one is assigned, the worker has one record in
flight at most, and counts before it takes each record that it takes it alone. A record at which `ALONE_DEATHS` processes
ended, alone, is a dead letter. The counts are in the committed offset's metadata, so they outlive processes and rebalances.

Only the rule is here; `isolation.py` lets the loop follow it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from enricher.records import Mark, Partition, Release, Start

ALONE_DEATHS = 2
"""One process may end by chance while a record is alone in flight; two in a row at the same record hardly do."""


@dataclass(slots=True)
class _Standing:
    """What is known of a partition's committed offset.

    `found`: the mark that counts the other processes, and stays when this one leaves in order. `written`: the mark that
    stands there, or will if a transaction of unknown outcome went through.
    """

    offset: int
    found: Mark
    written: Mark


class Attempts:
    """The counts of our partitions. Nothing is counted, and no partition is ever suspect, where `max_deaths` is 0.

    A suspect partition is cleared after `alone_articles`, as many as may have been in flight when a process ended.
    """

    def __init__(self, max_deaths: int, alone_articles: int) -> None:
        self._max_deaths = max_deaths
        self._alone_articles = alone_articles
        self._standings: dict[Partition, _Standing] = {}
        self._past: dict[Partition, _Standing] = {}
        """Standings of partitions that were given up or rewound: they tell our own marks from those of others."""
        self._due: set[Partition] = set()
        """Partitions of which no record has arrived since they were assigned or rewound."""
        self._alone_left: dict[Partition, int] = {}
        """The suspect partitions, and how many of their articles are still to be taken alone."""

    @property
    def quiet(self) -> bool:
        """True where the next records may go on without a look at them."""
        return not self._due and not self._alone_left

    @property
    def suspects(self) -> Collection[Partition]:
        """The partitions because of which there may be one record in flight at most."""
        return self._alone_left.keys()

    # ---- partitions come, go and are rewound

    def expect(self, partitions: Iterable[Partition]) -> None:
        """Reading of these begins at their committed offsets: they were assigned, or rewound. Suspects stay suspect."""
        for partition in partitions:
            self._forget(partition)
            if self._max_deaths:
                self._due.add(partition)

    def leave(self, partitions: Iterable[Partition]) -> None:
        """These are not ours any more."""
        for partition in partitions:
            self._forget(partition)
            self._alone_left.pop(partition, None)

    def _forget(self, partition: Partition) -> None:
        self._due.discard(partition)
        if standing := self._standings.pop(partition, None):
            self._past[partition] = standing

    def unknown(self, partitions: Iterable[Partition]) -> list[Partition]:
        """Those of which `begin` is still to be called."""
        return [partition for partition in partitions if partition in self._due and partition not in self._standings]

    def begin(self, partition: Partition, start: Start) -> bool:
        """Hear where reading began; returns whether the partition has become suspect by it.

        A mark that this process has written itself is no death: a rewind, or a partition that was lost and came back.
        """
        standing = self._past.pop(partition, None)
        if standing is None or (standing.offset, standing.written) != (start.offset, start.mark):
            standing = _Standing(start.offset, start.mark, start.mark)
        self._standings[partition] = standing
        if standing.found.attempts < self._max_deaths and not standing.found.alone:
            self._alone_left.pop(partition, None)
            return False
        if partition in self._alone_left:
            return False
        self._alone_left[partition] = self._alone_articles
        return True

    # ---- records arrive

    def counted(self, firsts: Mapping[Partition, int]) -> Release:
        """What to publish before the records go on that begin at these offsets; empty where all is counted already.

        While a partition is suspect there is one record, of whichever partition. It is counted at its own offset, past
        those that carry no record: else another one could be blamed after this one was compacted away.
        """
        committable: dict[Partition, int] = {}
        marks: dict[Partition, Mark] = {}
        for partition, first in firsts.items():
            standing = self._standings.get(partition) if self._alone_left or partition in self._due else None
            # A log that was cut off may begin below its committed offset: nothing is known of its records.
            if standing and first >= standing.offset and self._count(standing, first):
                committable[partition], marks[partition] = standing.offset, standing.written
        self._due.difference_update(firsts)
        return Release((), committable, marks)

    def _count(self, standing: _Standing, first: int) -> bool:
        """Count in a new mark; False where that was done before, or the record will not go on."""
        alone = bool(self._alone_left)
        found, offset = standing.found, standing.offset
        if alone and first != offset:
            found, offset = Mark(found.attempts), first
        wanted = Mark(found.attempts + 1, found.alone + alone)
        if (offset, wanted) == (standing.offset, standing.written) or (alone and found.alone >= ALONE_DEATHS):
            return False
        standing.offset, standing.found, standing.written = offset, found, wanted
        return True

    def verdict(self, partition: Partition, offset: int) -> int:
        """How many processes ended while the record at this offset was alone in flight; 0 where it is to be taken."""
        standing = self._standings.get(partition)
        deaths = standing.found.alone if standing and standing.offset == offset else 0
        return deaths if deaths >= ALONE_DEATHS else 0

    # ---- offsets are committed

    def sealed(self, release: Release, leaving: Collection[Partition] = ()) -> Release:
        """The release with its marks. Partitions of `leaving` that made no progress get the mark that they came with."""
        committable, marks = dict(release.committable), {}
        for partition in leaving:
            standing = self._standings.get(partition)
            if standing and standing.written != standing.found:
                committable.setdefault(partition, standing.offset)
        for partition, offset in committable.items():
            if mark := self._mark_at(partition, offset, leaving):
                marks[partition] = mark
        return Release(release.tickets, committable, marks)

    def _mark_at(self, partition: Partition, offset: int, leaving: Collection[Partition]) -> Mark | None:
        standing = self._standings.get(partition)
        if standing and offset == standing.offset:
            return standing.found if partition in leaving else standing.written
        # Whoever continues a suspect partition takes its records alone, too.
        return Mark(self._max_deaths) if partition in self._alone_left else None

    def committed(self, release: Release) -> None:
        """The release stands in the log."""
        for partition, offset in release.committable.items():
            if standing := self._standings.get(partition):
                standing.written = release.marks.get(partition, Mark())
                if offset != standing.offset:
                    standing.offset, standing.found = offset, standing.written
        if self._alone_left:
            for ticket in release.tickets:
                if ticket.raw.partition in self._alone_left:
                    self._alone_left[ticket.raw.partition] -= 1

    def cleared(self, ends: Mapping[Partition, int]) -> Release:
        """Acquit suspect partitions that are through with the articles in question; returns what to publish about it.

        `ends`: offsets at which a partition ends, as far as they are known. Ask only while nothing is in flight.
        """
        committable: dict[Partition, int] = {}
        for partition, left in list(self._alone_left.items()):
            standing = self._standings.get(partition)
            if standing and (left <= 0 or standing.offset >= ends.get(partition, math.inf)):
                committable[partition] = standing.offset
                standing.found = standing.written = Mark()
                del self._alone_left[partition]
        return Release((), committable)
