"""Arrival times, fixed before a run starts, and percentiles of the latencies that it measures. Pure functions."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

MIN_FOR_P99 = 100
"""With fewer values the 99th percentile would be the largest value, which says little."""


def poisson(rate_per_s: float, seconds: float, *, seed: int) -> list[float]:
    """Poisson arrival times in [0, seconds), as from independent publishers. The same seed gives the same times."""
    chance, times, now_s = random.Random(seed), [], 0.0  # noqa: S311  nothing secret
    while (now_s := now_s + chance.expovariate(rate_per_s)) < seconds:
        times.append(now_s)
    return times


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest rank: the smallest value that at least `share` of all values (0 to 1) do not exceed."""
    assert values, "of at least one value"
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def p99(values: Sequence[float]) -> float | None:
    """The 99th percentile; None if there are fewer than `MIN_FOR_P99` values."""
    return percentile(values, 0.99) if len(values) >= MIN_FOR_P99 else None
