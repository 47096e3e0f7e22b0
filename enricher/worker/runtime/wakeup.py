"""Events that a signal handler may set: `Wakeup` any number of times, `StopEvent` once.

Not `threading.Event`: its `set` takes a lock that `clear` and `wait` hold briefly, so a signal handler that interrupts them
in the same thread deadlocks. `SimpleQueue.put` is reentrant, and waiting on it is cheaper.
"""

from __future__ import annotations

from contextlib import suppress
from queue import Empty, SimpleQueue


class Wakeup:
    """One thread waits; any thread wakes it."""

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
