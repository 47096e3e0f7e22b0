"""A clock for what reads the time by itself and waits for nothing; `loop/fake_clock.py` is for what waits."""

from __future__ import annotations


class Clock:
    """A clock that tests advance."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        """Seconds."""
        return self.now_s
