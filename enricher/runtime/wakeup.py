"""What wakes a thread that waits, also from a signal handler: `Bell`, any number of times, and `Latch`, once for good.

Not `threading.Event`: its `set` takes a lock that `clear` and `wait` hold for a moment, and a handler that comes just then,
in the same thread, waits for itself for ever. `SimpleQueue.put` may be called at any moment; waiting on it costs less.
"""

from __future__ import annotations

from queue import Empty, SimpleQueue


class Bell:
    """For one thread that waits, and any that ring."""

    def __init__(self) -> None:
        self._rings: SimpleQueue[None] = SimpleQueue()

    @property
    def rung(self) -> bool:
        """True where it has rung since `hush`, and no `wait` has taken it."""
        return not self._rings.empty()

    def ring(self) -> None:
        """Wake who waits, or who will. Never blocks."""
        self._rings.put(None)

    def hush(self) -> None:
        """Forget that it rang."""
        while self.rung:
            self._rings.get_nowait()

    def wait(self, timeout_s: float | None = None) -> None:
        """Until it rings, if it has not yet; for `timeout_s` at most, None for as long as it takes."""
        try:
            self._rings.get(timeout=timeout_s)
        except Empty:
            return


class Latch:
    """Set once, for good; one thread may wait for it."""

    def __init__(self) -> None:
        self._bell = Bell()
        self.is_set = False

    def set(self) -> None:
        """Never blocks."""
        self.is_set = True
        self._bell.ring()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Until it is set, for `timeout_s` at most; tells whether it is."""
        if not self.is_set:
            self._bell.wait(timeout_s)
        return self.is_set
