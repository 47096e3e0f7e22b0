"""Arrivals: endless sequences of times, and articles at those times."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, count, takewhile
from random import Random

from enricher.workshop.simulator import Arrival


def evenly(per_s: float) -> Iterator[float]:
    return (number / per_s for number in count())


def at_random(per_s: float, random: Random) -> Iterator[float]:
    """Poisson arrivals."""
    return along(lambda _: per_s, per_s, random)


def in_bursts(per_s: float, every_s: float) -> Iterator[float]:
    """The same rate, but all arrivals of `every_s` seconds at one moment."""
    return (number // max(1, round(per_s * every_s)) * every_s for number in count())


def along(per_s_at: Callable[[float], float], most_per_s: float, random: Random) -> Iterator[float]:
    """Poisson arrivals at a rate that changes over time and never exceeds `most_per_s`: a day's curve."""
    at_s = 0.0
    while True:
        at_s += random.expovariate(most_per_s)
        if random.random() * most_per_s < per_s_at(at_s):
            yield at_s


def poisson(per_s: float, seconds: float, *, seed: int) -> list[float]:
    """Times in [0, seconds), as from independent publishers. The same seed gives the same times."""
    random = Random(seed)  # noqa: S311  nothing secret
    times_s = accumulate(random.expovariate(per_s) for _ in count())
    return list(takewhile(lambda at_s: at_s < seconds, times_s))


def arriving(
    times_s: Iterable[float], articles: Sequence[Sequence[int]], random: Random, *, until_s: float
) -> Iterator[Arrival]:
    """A random article at each time before `until_s`."""
    return (Arrival(at_s, random.choice(articles)) for at_s in takewhile(lambda at_s: at_s < until_s, times_s))


def in_turn(articles: Sequence[Sequence[int]], total: int) -> Iterator[Arrival]:
    """A backlog of `total` articles, repeating `articles` in order."""
    return (Arrival(0.0, articles[number % len(articles)]) for number in range(total))
