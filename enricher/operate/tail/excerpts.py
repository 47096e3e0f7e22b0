"""Which parts of an article to show, and where their entities are. Pure; colours are in `show`.

Positions are half-open ranges of Unicode code points, as in the enriched record.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from enricher.worker.records import SourceMap
from enricher.worker.telemetry.logs import CONTROLS

# A sentence ends at a full stop before white space; good enough to choose what to show.
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"'”’)]*\s+|\n+")
_SPACES = dict.fromkeys(CONTROLS, " ")


@dataclass(frozen=True, slots=True)
class Mark:
    """An entity's range in its text."""

    start: int
    end: int
    label: str


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A part of a text with its entities; the marks count from the start of the excerpt."""

    text: str
    marks: tuple[Mark, ...]


def printable(text: str) -> str:
    """The text with control characters replaced by spaces, of the same length: articles are untrusted."""
    return text.translate(_SPACES)


def marks_in(
    entities: Sequence[Mapping[str, Any]], field: str, text: str, source_map: SourceMap | None = None
) -> list[Mark] | None:
    """The entities of `field` in order; None if one is not in `text`, which then is not the text they were found in.

    `source_map`: where entities count in the source of the text.
    """
    marks = []
    for entity in entities:
        if entity["field"] == field:
            start, end = entity["start"], entity["end"]
            if source_map is not None:
                start, end = source_map.text_range(start, end)
            if text[start:end] != entity["text"]:
                return None
            marks.append(Mark(start, end, entity["label"]))
    return sorted(marks, key=lambda mark: mark.start)


def sentences(text: str, marks: Sequence[Mark]) -> list[Excerpt]:
    """The sentences or lines with entities, in order. Sentences that share an entity are joined."""
    found = []
    for start, end in _pieces(text, marks):
        inside = [Mark(m.start - start, m.end - start, m.label) for m in marks if start <= m.start and m.end <= end]
        if inside:
            found.append(Excerpt(text[start:end], tuple(inside)))
    return found


def _pieces(text: str, marks: Sequence[Mark]) -> Iterator[tuple[int, int]]:
    begin = 0
    for separator in _SENTENCE_END.finditer(text):
        crossed = any(mark.start < separator.end() and mark.end > separator.start() for mark in marks)
        if not crossed:
            yield begin, separator.start()
            begin = separator.end()
    yield begin, len(text)
