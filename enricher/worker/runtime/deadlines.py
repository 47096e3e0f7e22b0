"""Bounds on waits: the time that is left, and polling until a condition holds."""

from __future__ import annotations

import time
from collections.abc import Callable


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
