"""Waits: how long they may take, the pauses between tries, and the events that end them."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

_MOST_DOUBLINGS = 30
"""Doublings beyond this change no pause; the bound keeps the float from overflowing."""


class Deadline:
    """The time left for one wait, or for several together."""

    def __init__(self, timeout_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until_s = clock() + timeout_s

    @property
    def over(self) -> bool:
        """True once no time is left."""
        return self._clock() >= self._until_s

    def left_s(self) -> float:
        """The seconds that are left, never below 0."""
        return max(0.0, self._until_s - self._clock())


def until(done: Callable[[], bool], deadline: Deadline, *, pause_s: float) -> bool:
    """Poll until `done`, at least once, with pauses between. False if the deadline passes first."""
    while not done():
        if deadline.over:
            return False
        time.sleep(min(pause_s, deadline.left_s()))
    return True


def doubling_pause_s(failures: int, *, first_s: float, longest_s: float) -> float:
    """The pause after so many failures in a row: `first_s` after one, then twice as long each time, at most `longest_s`.

    0 after none.
    """
    if failures <= 0:
        return 0.0
    return min(longest_s, first_s * 2.0 ** min(failures - 1, _MOST_DOUBLINGS))


class Wakeup:
    """One thread waits; any thread wakes it, and so may a signal handler.

    Not `threading.Event`: its `set` takes a lock that `clear` and `wait` hold briefly, so a signal handler that interrupts
    them in the same thread deadlocks. `SimpleQueue.put` is reentrant, and waiting on it is cheaper.
    """

    def __init__(self) -> None:
        self._sets: SimpleQueue[None] = SimpleQueue()

    @property
    def is_set(self) -> bool:
        """True if `set` was called since the last `clear` and no `wait` has consumed it."""
        return not self._sets.empty()

    def set(self) -> None:
        """Wake the waiting thread, or the next one to wait. Never blocks."""
        self._sets.put(None)

    def clear(self) -> None:
        """Discard earlier calls of `set`."""
        while self.is_set:
            self._sets.get_nowait()

    def wait(self, timeout_s: float | None = None) -> None:
        """Return once `set` was called, or after `timeout_s` seconds; None waits without a limit."""
        # CPython 3.11's `get` may wait forever if its time is over when it finds that a `set` was consumed by `clear`. A
        # try that does not wait makes it forget that one.
        with suppress(Empty):
            self._sets.get_nowait()
            return
        with suppress(Empty):
            self._sets.get(timeout=timeout_s)


class StopEvent:
    """Set once, never cleared; one thread may wait for it."""

    def __init__(self) -> None:
        self._wakeup = Wakeup()
        self.is_set = False

    def set(self) -> None:
        """Set the event. Never blocks."""
        self.is_set = True
        self._wakeup.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait at most `timeout_s` seconds; return whether the event is set."""
        if not self.is_set:
            self._wakeup.wait(timeout_s)
        return self.is_set
