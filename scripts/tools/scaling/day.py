"""Arrivals: a weekday of news, with a feed that pauses for an hour at night, and a breaking story."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import numpy as np
import numpy.typing as npt

from tools.bench.simulator.arrivals import along

HOUR_S = 3600
DAY_S = 24 * HOUR_S
# Assumed, not recorded: a newsroom's weekday, each hour's share of the busiest.
_HOURS = (20, 15, 12, 0, 12, 22, 40, 65, 88, 100, 98, 95, 88, 90, 95, 98, 92, 82, 68, 55, 45, 38, 32, 26)
_PAUSE_S = (3 * HOUR_S, 4 * HOUR_S)
_BREAKS_S = 14 * HOUR_S + 10 * 60
_RISE_S = 120.0
_HALF_LIFE_S = 25 * 60.0
_TIMES = 5.0
"""The story's peak, as a multiple of that hour's usual rate."""
Counts = npt.NDArray[np.int64]


def shape(at_s: float) -> float:
    """The arrival rate, as a share of the busiest usual hour."""
    if _PAUSE_S[0] <= at_s < _PAUSE_S[1]:
        return 0.0
    hour, part = divmod(at_s / HOUR_S, 1)
    now, then = _HOURS[int(hour) % 24], _HOURS[(int(hour) + 1) % 24]
    usual = (now + (then - now) * part if now and then else max(now, then)) / 100
    return usual * (1 + (_TIMES - 1) * _story(at_s - _BREAKS_S))


def _story(since_s: float) -> float:
    if since_s < 0:
        return 0.0
    return float(min(1.0, since_s / _RISE_S) * 0.5 ** (max(0.0, since_s - _RISE_S) / _HALF_LIFE_S))


def arrivals(articles: int, random: Random) -> Counts:
    """Number of arrivals in each second of the day, about `articles` in total."""
    per_s = articles / sum(shape(second) for second in range(DAY_S))
    counts = np.zeros(DAY_S, np.int64)
    for start_s in range(0, DAY_S, HOUR_S):
        most = per_s * max(shape(start_s + second) for second in range(HOUR_S))
        if most:
            _count(counts, start_s, lambda at_s: per_s * shape(at_s), most, random)
    return counts


def _count(counts: Counts, start_s: int, per_s_at: Callable[[float], float], most: float, random: Random) -> None:
    for at_s in along(lambda since_s: per_s_at(start_s + since_s), most, random):
        if at_s >= HOUR_S:
            return
        counts[start_s + int(at_s)] += 1
