"""Which partitions a process left behind when it ended, until somebody has them.

A process that is killed stays a member of the group, for its broker, until the session timeout: its partitions are
nobody's for so long, though every other process is ready and knows of no lag. Nobody reports them, so the parent remembers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

Names = Mapping[str, int]
"""Partitions by name (`topic-number`), each with its lag."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What a process said at one look."""

    pid: int
    partitions: Names
    oldest_age_s: float
    seen_s: float


@dataclass(frozen=True, slots=True)
class Ownerless:
    """Partitions without an owner, together. `lag` is what it was when they were last seen."""

    partitions: int = 0
    lag: int = 0
    oldest_age_s: float = 0.0


@dataclass(frozen=True, slots=True)
class _Left:
    holding: Holding
    gone_s: float


class Owners:
    """Remembers what each process held. `handed_out_s`: by then the broker has given the partitions to other members.

    What none of our processes has after that time belongs to a worker elsewhere, or the group has a trouble of which its
    members tell. Safe for one thread; the callers take a lock.
    """

    def __init__(self, handed_out_s: float, clock: Callable[[], float]) -> None:
        self._handed_out_s = handed_out_s
        self._clock = clock
        self._holdings: dict[int, Holding] = {}
        self._left: dict[str, _Left] = {}

    def note(self, number: int, holding: Holding) -> None:
        """What a process says that it holds: nobody has lost that."""
        self._check(number, holding.pid)
        self._holdings[number] = holding
        for name in holding.partitions:
            self._left.pop(name, None)

    def without_owner(self, pids: Mapping[int, int]) -> Ownerless:
        """What nobody has now. `pids` are those of the processes that run."""
        for number in list(self._holdings):
            self._check(number, pids.get(number))
        now_s = self._clock()
        self._left = {name: left for name, left in self._left.items() if now_s - left.gone_s < self._handed_out_s}
        if not self._left:
            return Ownerless()
        return Ownerless(
            partitions=len(self._left),
            lag=sum(left.holding.partitions[name] for name, left in self._left.items()),
            # A record that came right after the last look is that old; one that was waiting then has got older.
            oldest_age_s=max(left.holding.oldest_age_s + now_s - left.holding.seen_s for left in self._left.values()),
        )

    def ended(self, number: int) -> None:
        """A process ended in good order: it left the group, which has handed its partitions on."""
        self._holdings.pop(number, None)

    def _check(self, number: int, pid: int | None) -> None:
        """Where the process that held them is no more, nobody holds them."""
        held = self._holdings.get(number)
        if held is not None and held.pid != pid:
            del self._holdings[number]
            self._left |= {name: _Left(held, self._clock()) for name in held.partitions}
