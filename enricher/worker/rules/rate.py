"""How many articles may be read per second, if that is limited: a bucket that holds what may be read in one second.

Nothing here reads a clock.
"""

from __future__ import annotations

_BURST_S = 1.0


class RateLimit:
    """At most `per_s` articles in a second on average; 0 is no limit."""

    def __init__(self, per_s: float, now_s: float) -> None:
        self._per_s = per_s
        self._most = max(1.0, per_s * _BURST_S)
        self._left = min(1.0, per_s)
        self._noted_s = now_s

    def allows(self, room: int, now_s: float) -> int:
        """How many of `room` articles may be read now."""
        return min(room, int(self._left_at(now_s))) if self._per_s else room

    def taken(self, count: int, now_s: float) -> None:
        """Note that articles were read."""
        if self._per_s:
            self._left, self._noted_s = self._left_at(now_s) - count, now_s

    def next_s(self, now_s: float) -> float | None:
        """When the next article may be read; None if there is no limit."""
        if not self._per_s:
            return None
        return now_s + max(0.0, 1.0 - self._left_at(now_s)) / self._per_s

    def _left_at(self, now_s: float) -> float:
        return min(self._most, self._left + (now_s - self._noted_s) * self._per_s)
