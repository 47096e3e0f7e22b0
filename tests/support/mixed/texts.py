"""The articles themselves, before anybody writes them in some layout."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

import orjson

from tools import ARTICLES

_WORDS = (20, 60)
_DESKS = ("politics", "Sport & Jugend", "local/Köln", "science")


@dataclass(frozen=True, slots=True)
class Text:
    """One article. Several inputs have the same text, each in another form, and differ in their ids."""

    title: str
    paragraphs: tuple[str, ...]
    language: str
    desk: str
    published_at: str


class Texts:
    """Short articles, cut from the samples; the n-th depends on n alone."""

    def __init__(self) -> None:
        samples = [orjson.loads(line) for line in ARTICLES.read_bytes().splitlines()]
        self._titles = [sample["title"] for sample in samples]
        self._bodies = [sample["body"].split() for sample in samples]

    def text(self, number: int) -> Text:
        """Two paragraphs with a title."""
        chosen = Random(number)
        sample = chosen.randrange(len(self._bodies))
        return Text(
            self._titles[sample],
            (self._cut(chosen, sample), self._cut(chosen, sample)),
            "en",
            chosen.choice(_DESKS),
            f"2026-11-{1 + number % 28:02d}T10:00:00Z",
        )

    def _cut(self, chosen: Random, sample: int) -> str:
        words = self._bodies[sample]
        start = chosen.randrange(max(1, len(words) - _WORDS[1]))
        # A character outside the basic plane: offsets are code points, whatever a format counts in.
        return " ".join([*words[start : start + chosen.randrange(*_WORDS)], "\N{ROCKET}"])
