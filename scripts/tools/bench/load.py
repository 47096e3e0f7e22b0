"""Articles to measure with, and when they arrive: the real samples, whole or in parts, in a news pipeline's mixes."""

from __future__ import annotations

import random
from typing import Any, Literal

import orjson

from tools import ARTICLES

Mix = Literal["news", "headlines", "long", "mixed"]
_LONG_READ = 6
"""How many samples are joined to one long read of about 6,000 tokens."""


def articles(mix: Mix, count: int, *, seed: int = 0) -> list[bytes]:
    """`count` articles as JSON with unique ids; the same seed gives the same articles.

    `news`: the samples as they are, about 1,000 tokens. `headlines`: title and first sentences, 10 to 60 tokens.
    `long`: several samples in one. `mixed`: 60 % headlines, 30 % news, 10 % long, in random order.
    """
    samples = [orjson.loads(line) for line in ARTICLES.read_bytes().splitlines()]
    chance = random.Random(seed)  # noqa: S311  articles, not secrets
    chance.shuffle(samples)
    made = []
    for number in range(count):
        kind = chance.choices(("headlines", "news", "long"), (0.6, 0.3, 0.1))[0] if mix == "mixed" else mix
        sample = samples[number % len(samples)]
        made.append(sample | {"id": f"{sample['id']}#{number}", "body": _body(kind, number, samples, chance)})
    return [orjson.dumps(article) for article in made]


def poisson(per_s: float, seconds: float, *, seed: int) -> list[float]:
    """Arrivals of independent publishers, as times in [0, seconds). The same seed gives the same times."""
    chance = random.Random(seed)  # noqa: S311  nothing secret
    times_s, at_s = list[float](), chance.expovariate(per_s)
    while at_s < seconds:
        times_s.append(at_s)
        at_s += chance.expovariate(per_s)
    return times_s


def _body(kind: str, number: int, samples: list[dict[str, Any]], chance: random.Random) -> str:
    own: str = samples[number % len(samples)]["body"]
    if kind == "headlines":
        return own[: chance.randint(20, 220)]
    if kind == "long":
        return "\n\n".join(samples[(number + place) % len(samples)]["body"] for place in range(_LONG_READ))
    return own
