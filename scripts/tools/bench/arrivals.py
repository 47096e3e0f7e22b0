"""Arrivals of independent publishers."""

from __future__ import annotations

from itertools import accumulate, count, takewhile
from random import Random


def poisson(per_s: float, seconds: float, *, seed: int) -> list[float]:
    """Times in [0, seconds). The same seed gives the same times."""
    random = Random(seed)  # noqa: S311  nothing secret
    times_s = accumulate(random.expovariate(per_s) for _ in count())
    return list(takewhile(lambda at_s: at_s < seconds, times_s))
