"""What wakes a waiting thread, also from a signal handler: `Wakeup`, any number of times, and `StopEvent`, once.

Not `threading.Event`: its `set` takes a lock that `clear` and `wait` hold for a moment, and a handler that comes just then,
in the same thread, waits for itself for ever. `SimpleQueue.put` may be called at any moment; waiting on it costs less.
"""

from __future__ import annotations

from queue import Empty, SimpleQueue


class Wakeup:
    """One thread waits, any thread wakes it."""

    def __init__(self) -> None:
        self._sets: SimpleQueue[None] = SimpleQueue()

    @property
    def is_set(self) -> bool:
        """True if `set` was called since `clear`, and no `wait` has returned for it."""
        return not self._sets.empty()

    def set(self) -> None:
        """Wake the thread that waits, or the next one that will. Never blocks."""
        self._sets.put(None)

    def clear(self) -> None:
        """Forget earlier calls of `set`."""
        while self.is_set:
            self._sets.get_nowait()

    def wait(self, timeout_s: float | None = None) -> None:
        """Return once `set` was called, or after `timeout_s` seconds; None waits without limit."""
        try:
            self._sets.get(timeout=timeout_s)
        except Empty:
            return


class StopEvent:
    """Set once and never cleared; one thread may wait for it."""

    def __init__(self) -> None:
        self._wakeup = Wakeup()
        self.is_set = False

    def set(self) -> None:
        """Never blocks."""
        self.is_set = True
        self._wakeup.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Return whether it is set, after waiting for it `timeout_s` seconds at most."""
        if not self.is_set:
            self._wakeup.wait(timeout_s)
        return self.is_set
