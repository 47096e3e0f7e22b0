"""Texts for heads that find no entities: with their classes, or without any labels.

A line is `{"id": ..., "text": ..., "label": ...}`, or `{"text": ..., "labels": [...]}` where several may hold or none does;
other keys are ignored. Embeddings need `text` only.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from enricher.errors import FatalError
from enricher.workshop.gate.gold import GoldSet, GoldText, gold_lines, unusable

if TYPE_CHECKING:
    from pathlib import Path

    from enricher.worker.heads import HeadSpec


class _Line(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)

    text: str = Field(min_length=1)


class _ClassLine(_Line):
    label: str | None = Field(None, min_length=1)
    labels: list[str] | None = None


_Parsed = TypeVar("_Parsed", bound=_Line)


def read_classes(path: Path, head: HeadSpec) -> GoldSet:
    """Texts with their classes, which must be among those of the head. Raises FatalError."""
    content, lines = gold_lines(path)
    return _gold_set(path, content, [_classify(path, number, line, head) for number, line in lines])


def read_texts(path: Path) -> GoldSet:
    """Texts alone, whatever else the lines say. Raises FatalError."""
    content, lines = gold_lines(path)
    return _gold_set(path, content, [GoldText(_parse(_Line, path, number, line).text) for number, line in lines])


def _gold_set(path: Path, content: bytes, texts: list[GoldText]) -> GoldSet:
    if not texts:
        raise FatalError(f"the gold set {path} has no texts, so it cannot measure anything")
    return GoldSet(path.stem, hashlib.sha256(content).hexdigest(), tuple(texts))


def _classify(path: Path, number: int, line: bytes, head: HeadSpec) -> GoldText:
    parsed = _parse(_ClassLine, path, number, line)
    if (parsed.label is None) == (parsed.labels is None):
        raise FatalError(f"the gold set {path}, line {number}: expected one of `label` and `labels`")
    classes = frozenset([parsed.label] if parsed.label is not None else parsed.labels or [])
    if unknown := sorted(classes - set(head.labels)):
        raise FatalError(
            f"the gold set {path}, line {number}: the model has no class {unknown[0]!r}; it has {', '.join(head.labels)}"
        )
    if not head.multi_label and len(classes) != 1:
        raise FatalError(f"the gold set {path}, line {number}: {len(classes)} classes, and the model gives exactly one")
    return GoldText(parsed.text, classes=classes)


def _parse(kind: type[_Parsed], path: Path, number: int, line: bytes) -> _Parsed:
    try:
        return kind.model_validate_json(line)
    except ValidationError as error:
        raise unusable(path, number, error) from error
