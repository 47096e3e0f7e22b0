"""Time that passes only when somebody waits, a wakeup on it, and threads whose work takes some of it.

Durations in the tests are multiples of 1/1024 s, so that sums of them are exact and every run is the same.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Generic, TypeVar, cast

from enricher.worker.loop.pool import WorkerPool
from enricher.worker.runtime.deadlines import Wakeup

Item = TypeVar("Item")
Result = TypeVar("Result")

TICK_S = 1 / 1024


class FakeClock:
    """The monotonic clock of a whole world. What is due happens while somebody waits, in the order of its time."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self._order = count()
        self._due: list[tuple[float, int, Callable[[], object]]] = []

    def __call__(self) -> float:
        """Seconds since the world began."""
        return self.now_s

    def after(self, wait_s: float, event: Callable[[], object]) -> None:
        """Let something happen in `wait_s` seconds."""
        heapq.heappush(self._due, (self.now_s + wait_s, next(self._order), event))

    def wait(self, timeout_s: float, done: Callable[[], bool]) -> bool:
        """Let time pass until `done`, or for `timeout_s`; tells which."""
        deadline_s = self.now_s + timeout_s
        while not done():
            if not self._due or self._due[0][0] > deadline_s:
                self.now_s = deadline_s
                return False
            due_s, _, event = heapq.heappop(self._due)
            self.now_s = max(self.now_s, due_s)
            event()
        return True

    def sleep(self, wait_s: float) -> None:
        """Let time pass: what a blocking call does to its caller."""
        self.wait(wait_s, lambda: False)


class FakeWakeup(Wakeup):
    """A wakeup that is waited for on the fake clock."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock
        self.waits_s: list[float] = []

    def wait(self, timeout_s: float | None = None) -> None:
        """Let time pass until it is set."""
        assert timeout_s is not None, "an unbounded wait could hang for ever"
        self.waits_s.append(timeout_s)
        self._clock.wait(timeout_s, lambda: self.is_set)


class FakePool(Generic[Item, Result]):
    """`WorkerPool` whose items take a random time each, and so come back in any order.

    `hangs`: nothing comes back any more. `loses`: what is submitted goes missing without a trace, as only a bug could do.
    """

    def __init__(
        self,
        run: Callable[[Item], Result],
        *,
        clock: FakeClock,
        wakeup: Wakeup,
        random: Random,
        limit: int = 4,
        longest_s: float = 64 * TICK_S,
    ) -> None:
        self.run = run
        self._clock = clock
        self._wakeup = wakeup
        self._random = random
        self._limit = limit
        self.longest_ticks = max(1, round(longest_s / TICK_S))
        self._results: list[Result] = []
        self.busy = 0
        self.hangs = False
        self.loses = False
        self.closed = False
        self.submitted: list[Item] = []
        self.backlogged = False
        self.threads = 1
        self.slowness: Callable[[Item], int] = lambda _item: 1
        """How many times as long an item takes."""
        self.busy_s = self.starved_s = 0.0

    def as_pool(self) -> WorkerPool[Item, Result]:
        """It has the same shape, and no threads."""
        return cast("WorkerPool[Item, Result]", self)

    @property
    def capacity(self) -> int:
        """How many more items may be submitted now."""
        return self._limit - self.busy

    def submit(self, item: Item) -> None:
        """Start on an item; its result is in after a random time."""
        assert self.capacity > 0, "submitted beyond the capacity"
        assert not self.closed, "submitted after close"
        self.submitted.append(item)
        if self.loses:
            return
        self.busy += 1
        ticks = self._random.randint(1, self.longest_ticks) * self.slowness(item)
        self._clock.after(ticks * TICK_S, lambda: self.finish(item))

    def take_results(self) -> list[Result]:
        """The results that are in."""
        results, self._results = self._results, []
        self.busy -= len(results)
        return results

    def close(self) -> None:
        """Let go."""
        self.closed = True

    def finish(self, item: Item) -> None:
        """Let the result of an item be in, as a thread does that has worked on it."""
        if not self.hangs and not self.closed:
            self._results.append(self.run(item))
            self._wakeup.set()
