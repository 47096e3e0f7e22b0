"""Labelled texts: a file of JSON lines, or the genres of the gold set that comes with the project."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import orjson

from tools import ROOT

GENRE = "genre"
"""Instead of a file: news or encyclopedia, as the names of the gold set's documents tell."""
GOLD = ROOT / "enricher" / "models" / "gold" / "pud.jsonl"
_GENRES = {"n": "news", "w": "encyclopedia"}


@dataclass(frozen=True, slots=True)
class Labelled:
    """One text. Texts of the same document are never on both sides of a test."""

    text: str
    label: str
    document: str


class UnfitTexts(Exception):
    """The file of labelled texts cannot be used; the message says why."""


def read_texts(source: str) -> list[Labelled]:
    """JSON lines with `text` and `label`; `document` or else `id` names where a text is from. Raises UnfitTexts."""
    if source == GENRE:
        return [_genre(line) for line in GOLD.read_bytes().splitlines()]
    texts = []
    for number, line in enumerate(Path(source).read_bytes().splitlines(), 1):
        try:
            value = orjson.loads(line)
            texts.append(
                Labelled(str(value["text"]), str(value["label"]), str(value.get("document", value.get("id", number))))
            )
        except (ValueError, KeyError, TypeError) as error:
            raise UnfitTexts(f"{source}, line {number}: not an object with text and label: {error}") from error
    if len({each.label for each in texts}) < 2:
        raise UnfitTexts(f"{source}: at least two labels are needed")
    return texts


def _genre(line: bytes) -> Labelled:
    value = orjson.loads(line)
    document = value["id"].partition("-")[0]
    return Labelled(value["text"], _GENRES[document[0]], document)
