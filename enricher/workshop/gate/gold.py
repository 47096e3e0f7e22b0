"""Labelled text: read from JSON lines, and joined to form longer documents. Knows no model.

This file reads entities; gold_classes.py reads classes, and texts that need no labels.

A line is `{"id": ..., "text": ..., "entities": [{"start": ..., "end": ..., "label": ...}]}`, offsets half-open in Unicode
code points; other keys are ignored. enricher/models/gold/ has the default.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from itertools import cycle, pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from enricher.errors import FatalError
from enricher.workshop.gate.scoring import EntitySpan

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

DEFAULT_GOLD = Path(__file__).parents[2] / "models" / "gold" / "pud.jsonl"
DOCUMENT_CHARS = (300, 800, 2000, 5000)
"""Lengths of joined documents: from a brief to a long article, of one window to about ten."""


@dataclass(frozen=True, slots=True)
class GoldText:
    """A text and what people found in it: entities, all in the field `body`, or classes."""

    text: str
    entities: tuple[EntitySpan, ...] = ()
    classes: frozenset[str] | None = None
    """Its class as people judged it; None if nobody has."""


@dataclass(frozen=True, slots=True)
class GoldSet:
    """Labelled texts, and the digest (sha256, hex) of their file."""

    name: str
    digest: str
    texts: tuple[GoldText, ...]


class _Entity(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    start: int = Field(ge=0)
    end: int
    label: str = Field(min_length=1)


class _Line(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    text: str = Field(min_length=1)
    entities: list[_Entity]


def read_gold(path: Path, labels: Collection[str] | None = None) -> GoldSet:
    """Read a gold set. Raises FatalError, with line and field, if it cannot be used.

    `labels`: all that its entities may have; None if any will do.
    """
    content, lines = gold_lines(path)
    texts = tuple(_read_line(path, number, line, labels) for number, line in lines)
    if not texts:
        raise FatalError(f"the gold set {path} is empty: a line of it is a JSON object with `text` and `entities`")
    if not any(text.entities for text in texts):
        raise FatalError(f"the gold set {path} has no entities, so it cannot measure anything")
    return GoldSet(path.stem, hashlib.sha256(content).hexdigest(), texts)


def gold_lines(path: Path) -> tuple[bytes, list[tuple[int, bytes]]]:
    """The content of a gold set's file, and its lines with their numbers, without empty ones. Raises FatalError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise FatalError(f"the gold set {path} cannot be read: {error.strerror}") from error
    return content, [(number, line) for number, line in enumerate(content.splitlines(), start=1) if line.strip()]


def unusable(path: Path, number: int, error: ValidationError) -> FatalError:
    """The error about a line that is not as it must be, without the line's text."""
    problem = error.errors(include_input=False)[0]
    where = ".".join(str(part) for part in problem["loc"]) or "the line"
    return FatalError(f"the gold set {path}, line {number}: {where}: {problem['msg']}")


def join_texts(texts: Sequence[GoldText]) -> tuple[GoldText, ...]:
    """Adjacent texts, joined by spaces, as documents of each length of DOCUMENT_CHARS in turn."""
    documents: list[GoldText] = []
    waiting: list[GoldText] = []
    lengths = cycle(DOCUMENT_CHARS)
    wanted_chars = next(lengths)
    for text in texts:
        waiting.append(text)
        if sum(len(each.text) + 1 for each in waiting) >= wanted_chars:
            documents.append(_join(waiting))
            waiting, wanted_chars = [], next(lengths)
    return (*documents, *([_join(waiting)] if waiting else []))


def _join(texts: Sequence[GoldText]) -> GoldText:
    entities: list[EntitySpan] = []
    first = 0
    for text in texts:
        entities += [EntitySpan(each.field, each.start + first, each.end + first, each.label) for each in text.entities]
        first += len(text.text) + 1
    return GoldText(" ".join(text.text for text in texts), tuple(entities))


def _read_line(path: Path, number: int, line: bytes, labels: Collection[str] | None) -> GoldText:
    try:
        parsed = _Line.model_validate_json(line)
    except ValidationError as error:
        raise unusable(path, number, error) from error
    for problem in _problems(parsed, labels):
        raise FatalError(f"the gold set {path}, line {number}: {problem}")
    return GoldText(
        parsed.text, tuple(EntitySpan("body", each.start, each.end, each.label) for each in parsed.entities)
    )


def _problems(parsed: _Line, labels: Collection[str] | None) -> Iterator[str]:
    """Each begins with the field."""
    for index, entity in enumerate(parsed.entities):
        if not entity.start < entity.end <= len(parsed.text):
            yield f"entities.{index}: [{entity.start}, {entity.end}) is not a span of its text"
        if labels is not None and entity.label not in labels:
            yield f"entities.{index}.label: no model has the label {entity.label!r}; known are {', '.join(labels)}"
    in_order = sorted(enumerate(parsed.entities), key=lambda each: each[1].start)
    for (index, entity), (following, other) in pairwise(in_order):
        if other.start < entity.end:
            yield f"entities.{following}: it overlaps entities.{index}"
