"""Articles to measure with, and when they arrive: the real samples, whole or in parts, in a news pipeline's mixes.

And catalogues: names of people, companies and places from parts, by a seed, and some of the articles'.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
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


def laps_of(values: Sequence[bytes], laps: int) -> list[bytes]:
    """The same articles several times, with unique ids."""
    decoded = [orjson.loads(value) for value in values]
    return [orjson.dumps(each | {"id": f"{each['id']}@{lap}"}) for lap in range(laps) for each in decoded]


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


_SYLLABLES = (
    "an be bo ca co da de di el en fa go ha in ja ka ki la le li lo ma mi mo na no or pa re ro sa se so ta va za"
)
_ENDINGS = ("Group", "Holdings", "Bank", "Partners", "University", "Foundation", "Council", "Airlines")
_IN_ARTICLES = re.compile(r"[A-Z][a-z]+(?: [A-Z][a-z]+){1,2}")
_ARTICLES_SHARE = 0.5
"""The share of the names of the sample articles that the catalogue has: it knows some of who is in the news, never all."""


def write_catalogue(path: Path, names: int, *, seed: int = 0) -> None:
    """Write entries with one name each, two to four words, with a label."""
    chance = random.Random(seed)  # noqa: S311  names, not secrets
    with path.open("wb") as file:
        for number, name in enumerate(_names(names, chance)):
            entry = {"id": f"Q{number}", "name": name, "label": ("PER", "ORG", "LOC")[number % 3]}
            file.write(orjson.dumps(entry) + b"\n")


def _names(count: int, chance: random.Random) -> Iterator[str]:
    """So many different names."""
    syllables = _SYLLABLES.split()
    first, last = (
        ["".join(chance.choices(syllables, k=chance.randint(2, 4))).capitalize() for _ in range(size)]
        for size in (3_000, 60_000)
    )
    known = sorted({*_IN_ARTICLES.findall(ARTICLES.read_text("utf-8"))})
    seen = {each for each in known if chance.random() < _ARTICLES_SHARE}
    yield from sorted(seen)[:count]
    while len(seen) < count:
        name = " ".join(
            (
                *chance.choices(first, k=chance.randint(1, 2)),
                chance.choice(last),
                *chance.sample(_ENDINGS, chance.random() < 0.3),
            )
        )
        if name not in seen:
            seen.add(name)
            yield name
