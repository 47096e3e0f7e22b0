"""How many articles may pass per second, if that is limited: a token bucket. Nothing here reads a clock."""

from __future__ import annotations

_ROUNDING = 1e-9
"""Sums of times may lack so much of an article; else a wait for it could be too short for the clock to move."""


class RateLimit:
    """At most `per_s` articles in a second on average; 0 is no limit.

    `burst_s`: after a pause, the articles of this much time may pass at once, and one in any case.
    """

    def __init__(self, per_s: float, now_s: float, *, burst_s: float = 1.0) -> None:
        self._per_s = per_s
        self._most = max(1.0, per_s * burst_s)
        self._left = 1.0
        self._noted_s = now_s

    def allows(self, room: int, now_s: float) -> int:
        """How many of `room` articles may pass now."""
        return min(room, int(self._left_at(now_s) + _ROUNDING)) if self._per_s else room

    def taken(self, count: int, now_s: float) -> None:
        """Note that articles passed."""
        if self._per_s:
            self._left, self._noted_s = self._left_at(now_s) - count, now_s

    def wait_s(self, now_s: float) -> float | None:
        """Seconds until the next article may pass; None if there is no limit."""
        return max(0.0, 1.0 - self._left_at(now_s)) / self._per_s if self._per_s else None

    def _left_at(self, now_s: float) -> float:
        return min(self._most, self._left + (now_s - self._noted_s) * self._per_s)
