"""When articles are due, fixed before anything starts; and what to say of the times that came back. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

MIN_FOR_P99 = 100
"""With fewer values the 99th percentile is the largest one, which says little."""


def poisson(rate_per_s: float, seconds: float, *, seed: int) -> list[float]:
    """Arrival times in [0, seconds), as of independent publishers: exponential pauses. The same seed, the same times."""
    chance, times, now_s = random.Random(seed), [], 0.0  # noqa: S311  nothing secret
    while (now_s := now_s + chance.expovariate(rate_per_s)) < seconds:
        times.append(now_s)
    return times


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest rank: the smallest value that at least `share` of all values (0 to 1) do not exceed."""
    assert values, "of at least one value"
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def p99(values: Sequence[float]) -> float | None:
    """The 99th percentile, or None where there are too few values to have one."""
    return percentile(values, 0.99) if len(values) >= MIN_FOR_P99 else None
