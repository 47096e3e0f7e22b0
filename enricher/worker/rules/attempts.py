"""Counts how often processes ended at a committed offset, to find a record that kills the process.

Such a record (out of memory, a crash inside a library) kills every later process too. So before the records behind a
committed offset are processed, an attempt is counted in the offset's metadata, which outlives processes and rebalances; a
commit that moves the offset forward resets the count. While all records of a partition wait for their schemas, its attempt
is taken back: a record that waits cannot kill. After `max_deaths` attempts the partition is suspect: while a suspect
partition is assigned, the worker has at most one record in flight, and counts each record before it takes it alone. A
record with which `ALONE_DEATHS` processes ended, alone, becomes a dead letter.

A process counts from its attempt on, whatever ends it, because what kills it leaves no time to say so. A process that
ends for a reason that no record can cause takes its attempt back, as one that is stopped does: the topics do not allow
what the settings ask for (exit code 2), the brokers refuse it (4), take none of its transactions (6), or deliver
nothing (7). A record may be the cause of the other ends, so they count: a signal, a lack of memory, a bug, a device
that fails, a model or a turn of the loop that hangs. A process can take nothing back while no broker answers (6), or
once a newer producer has its transactional id (5). Such an end counts, but it blames a record only if it comes twice in
a row while that record is alone in flight.

Only the rule is here; `worker/loop/isolation.py` applies it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from enricher.worker.records import Mark, Partition, Release, Start

ALONE_DEATHS = 2
"""One process may end by chance while a record is alone in flight; two in a row at the same record hardly ever."""


@dataclass(slots=True)
class _Standing:
    """A partition's committed offset and its marks.

    `found` counts the other processes; it is committed again when this one leaves in order. `written` is the mark that is
    committed, or will be if a transaction of unknown outcome succeeded.
    """

    offset: int
    found: Mark
    written: Mark


class Attempts:
    """The counts of our partitions. With `max_deaths` 0 nothing is counted and no partition is ever suspect.

    A suspect partition is cleared after `alone_articles` articles: as many as may have been in flight when a process ended.
    """

    def __init__(self, max_deaths: int, alone_articles: int) -> None:
        self._max_deaths = max_deaths
        self._alone_articles = alone_articles
        self._standings: dict[Partition, _Standing] = {}
        self._past: dict[Partition, _Standing] = {}
        """Standings of partitions that were given up or rewound, by which we tell our own marks from those of other
        processes."""
        self._due: set[Partition] = set()
        """Partitions without a record since they were assigned or rewound, or since their attempt was taken back."""
        self._alone_left: dict[Partition, int] = {}
        """The suspect partitions, and how many of their articles must still be taken alone."""

    @property
    def quiet(self) -> bool:
        """True if the next records need no examination."""
        return not self._due and not self._alone_left

    @property
    def counted_here(self) -> bool:
        """True if this process may have counted an attempt that is still committed."""
        standings = [*self._standings.values(), *self._past.values()]
        return any(standing.written != standing.found for standing in standings)

    @property
    def suspects(self) -> Collection[Partition]:
        """Partitions that limit the worker to one record in flight."""
        return self._alone_left.keys()

    # ---- partitions come, go and are rewound

    def expect(self, partitions: Iterable[Partition]) -> None:
        """Note that partitions were assigned or rewound, so reading begins at their committed offsets. Suspects stay."""
        for partition in partitions:
            self._forget(partition)
            if self._max_deaths:
                self._due.add(partition)

    def leave(self, partitions: Iterable[Partition]) -> None:
        """Note that partitions are no longer ours."""
        for partition in partitions:
            self._forget(partition)
            self._alone_left.pop(partition, None)

    def _forget(self, partition: Partition) -> None:
        self._due.discard(partition)
        if standing := self._standings.pop(partition, None):
            self._past[partition] = standing

    def unknown(self, partitions: Iterable[Partition]) -> list[Partition]:
        """The partitions for which `begin` has not been called yet."""
        return [partition for partition in partitions if partition in self._due and partition not in self._standings]

    def begin(self, partition: Partition, start: Start) -> bool:
        """Note where reading began; return whether this makes the partition suspect.

        A mark that this process wrote itself counts no death: after a rewind, or if a lost partition came back.
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

    def count_attempts(self, firsts: Mapping[Partition, int]) -> Release:
        """The release to publish before the records that begin at these offsets are processed; empty if all are counted.

        While a partition is suspect, there is a single record, of any partition. It is counted at its own offset, past
        offsets without a record; otherwise another record could be blamed after this one was compacted away.
        """
        committable: dict[Partition, int] = {}
        marks: dict[Partition, Mark] = {}
        for partition, first in firsts.items():
            standing = self._standings.get(partition) if self._alone_left or partition in self._due else None
            # A truncated log may begin below its committed offset; then nothing is known about its records.
            if standing and first >= standing.offset and self._count(standing, first):
                committable[partition], marks[partition] = standing.offset, standing.written
        self._due.difference_update(firsts)
        return Release((), committable, marks)

    def _count(self, standing: _Standing, first: int) -> bool:
        """Count this attempt in `written`; False if it is counted already, or the record becomes a dead letter."""
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
        """How many processes ended while the record at this offset was alone in flight; 0 if it may be processed."""
        standing = self._standings.get(partition)
        deaths = standing.found.alone if standing and standing.offset == offset else 0
        return deaths if deaths >= ALONE_DEATHS else 0

    # ---- offsets are committed

    def seal(self, release: Release, leaving: Collection[Partition] = ()) -> Release:
        """Add marks to a release. Partitions in `leaving` without progress get back the mark that they came with.

        A partition in `leaving` is given up in order, all its records wait, or the process ends for a reason that no
        record can cause.
        """
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
        # The next owner of a suspect partition takes its records one at a time, too.
        return Mark(self._max_deaths) if partition in self._alone_left else None

    def note_committed(self, release: Release) -> None:
        """Note that the release is committed."""
        for partition, offset in release.committable.items():
            if standing := self._standings.get(partition):
                mark = release.marks.get(partition, Mark())
                if offset == standing.offset and mark == standing.found != standing.written:
                    self._due.add(partition)
                standing.written = mark
                if offset != standing.offset:
                    standing.offset, standing.found = offset, standing.written
        if self._alone_left:
            for ticket in release.tickets:
                if ticket.raw.partition in self._alone_left:
                    self._alone_left[ticket.raw.partition] -= 1

    def clear(self, ends: Mapping[Partition, int]) -> Release:
        """Clear suspect partitions that processed the articles in question; return what to publish about them.

        `ends`: the partitions' end offsets, where known. Call only while nothing is in flight.
        """
        committable: dict[Partition, int] = {}
        for partition, left in list(self._alone_left.items()):
            standing = self._standings.get(partition)
            if standing and (left <= 0 or standing.offset >= ends.get(partition, math.inf)):
                committable[partition] = standing.offset
                standing.found = standing.written = Mark()
                del self._alone_left[partition]
        return Release((), committable)
