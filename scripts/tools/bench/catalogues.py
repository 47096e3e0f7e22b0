"""Catalogues to measure with: names of people, companies and places from parts, by a seed, and some of the articles'."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path

import orjson

from tools import ARTICLES

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
