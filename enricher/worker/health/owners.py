"""Partitions without an owner: those of a process that ended or is silent, until another process has them.

A process that is killed or frozen stays a member of the group until the session timeout. Until then no process works on its
partitions or reports their lag, although all others are ready. The parent therefore remembers which process owned what.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

Names = Mapping[str, int]
"""Partitions by name (`topic-number`), each with its lag."""


@dataclass(frozen=True, slots=True)
class Holding:
    """A process's report at one moment."""

    pid: int
    partitions: Names
    oldest_age_s: float
    seen_s: float


@dataclass(frozen=True, slots=True)
class Ownerless:
    """All partitions without an owner. `lag` is their total lag when they were last reported."""

    partitions: int = 0
    lag: int = 0
    oldest_age_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Left:
    holding: Holding
    gone_s: float


class Owners:
    """Remembers which partitions each process owned.

    `handed_out_s`: the time within which the broker assigns the partitions of a killed process to other members. Partitions
    that none of our processes owns by then belong to a worker elsewhere. While none of our processes is alive, nobody can
    tell, so the time begins when one is. Not thread-safe.
    """

    def __init__(self, handed_out_s: float, clock: Callable[[], float]) -> None:
        self._handed_out_s = handed_out_s
        self._clock = clock
        self._holdings: dict[int, Holding] = {}
        self._left: dict[str, _Left] = {}

    def note(self, number: int, holding: Holding) -> None:
        """Record what a process reports: these partitions have an owner."""
        self._check(number, holding.pid)
        self._holdings[number] = holding
        for name in holding.partitions:
            self._left.pop(name, None)

    def without_owner(self, pids: Mapping[int, int]) -> Ownerless:
        """The partitions without an owner now. `pids`: process ids of the processes that run and report, by number."""
        for number in list(self._holdings):
            self._check(number, pids.get(number))
        now_s = self._clock()
        if not pids:
            self._left = {name: replace(left, gone_s=now_s) for name, left in self._left.items()}
        self._left = {name: left for name, left in self._left.items() if now_s - left.gone_s < self._handed_out_s}
        if not self._left:
            return Ownerless()
        return Ownerless(
            partitions=len(self._left),
            lag=sum(left.holding.partitions[name] for name, left in self._left.items()),
            # A record that waited at the last report has aged since; one that arrived just after it is not older.
            oldest_age_s=max(left.holding.oldest_age_s + now_s - left.holding.seen_s for left in self._left.values()),
        )

    def note_end(self, number: int) -> None:
        """Note that a process ended in an orderly way: it left the group, which assigned its partitions to others."""
        self._holdings.pop(number, None)

    def _check(self, number: int, pid: int | None) -> None:
        """If the process with this number is another one now, its partitions have lost their owner."""
        held = self._holdings.get(number)
        if held is not None and held.pid != pid:
            del self._holdings[number]
            self._left |= {name: _Left(held, self._clock()) for name in held.partitions}
