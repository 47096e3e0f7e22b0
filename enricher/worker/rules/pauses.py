"""How long to pause after failures in a row."""

from __future__ import annotations

_MOST_DOUBLINGS = 30
"""Far above any longest pause, so that the float cannot overflow."""


def doubling_pause_s(failures: int, *, first_s: float, longest_s: float) -> float:
    """The pause after so many failures in a row: `first_s` after one, then twice as long each time, at most `longest_s`.

    0 after none.
    """
    if failures <= 0:
        return 0.0
    return min(longest_s, first_s * 2.0 ** min(failures - 1, _MOST_DOUBLINGS))
