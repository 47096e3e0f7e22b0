"""When articles come: endless sequences of times, and articles of given lengths at them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from random import Random


@dataclass(frozen=True, slots=True)
class Arrival:
    """An article: when it comes, and how long its windows are."""

    at_s: float
    lengths_tokens: Sequence[int]


def at_once() -> Iterator[float]:
    """A backlog: everything is there already."""
    while True:
        yield 0.0


def evenly(per_s: float) -> Iterator[float]:
    """Always the same time between two."""
    return (number / per_s for number in count())


def at_random(per_s: float, random: Random) -> Iterator[float]:
    """Independent of one another (Poisson)."""
    return along(lambda _: per_s, per_s, random)


def in_bursts(per_s: float, every_s: float) -> Iterator[float]:
    """The same number per second, but all of `every_s` seconds at one moment."""
    return (number // max(1, round(per_s * every_s)) * every_s for number in count())


def along(per_s_at: Callable[[float], float], most_per_s: float, random: Random) -> Iterator[float]:
    """Independent, at a rate that changes over time and is never above `most_per_s`: a day's curve."""
    at_s = 0.0
    while True:
        at_s += random.expovariate(most_per_s)
        if random.random() * most_per_s < per_s_at(at_s):
            yield at_s


def arriving(
    times_s: Iterable[float], articles: Sequence[Sequence[int]], random: Random, *, until_s: float
) -> Iterator[Arrival]:
    """An article drawn at random at each of the times."""
    return (Arrival(at_s, random.choice(articles)) for at_s in takewhile(lambda at_s: at_s < until_s, times_s))


def in_turn(articles: Sequence[Sequence[int]], total: int) -> Iterator[Arrival]:
    """`total` articles of a backlog, in their own order, again and again."""
    return (
        Arrival(at_s, articles[number % len(articles)]) for number, at_s in zip(range(total), at_once(), strict=False)
    )
