"""Reads articles and writes enriched records: JSON with the same fields as our worker's."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

Article = dict[str, Any]
SEPARATOR = "\n\n"
_METADATA = ("language", "source", "url", "published_at")


@dataclass(frozen=True, slots=True)
class Span:
    """An entity in an article's text; `start` and `end` are a half-open range of characters."""

    start: int
    end: int
    label: str
    score: float


@dataclass(frozen=True, slots=True)
class Found:
    """The entities of one text, and its coverage."""

    spans: Sequence[Span]
    coverage: Mapping[str, Any]


def model_card(weights: Path, precision: str) -> dict[str, str]:
    """The model's name, digest and precision, as records contain it."""
    digest = hashlib.sha256(weights.read_bytes()).hexdigest()
    return {"name": weights.parent.name, "digest": digest, "precision": precision}


def text_of(article: Article) -> str:
    """Title and body as the single text that the model reads."""
    return (article.get("title") or "") + SEPARATOR + str(article["body"])


def encode(article: Article, found: Found, model: Mapping[str, str]) -> bytes:
    metadata = {name: article[name] for name in _METADATA if article.get(name) is not None}
    return orjson.dumps(
        {
            "schema_version": 1,
            "id": article["id"],
            **metadata,
            "entities": [_entity(article, span) for span in found.spans],
            "model": model,
            "coverage": found.coverage,
        }
    )


def _entity(article: Article, span: Span) -> dict[str, Any]:
    """Convert a span to an entity of the field in which it begins."""
    title = article.get("title") or ""
    name, text, shift = "title", title, 0
    if span.start >= len(title):
        name, text, shift = "body", article["body"], len(title) + len(SEPARATOR)
    start, end = span.start - shift, min(span.end - shift, len(text))
    return {
        "field": name,
        "start": start,
        "end": end,
        "text": text[start:end],
        "label": span.label,
        "score": round(span.score, 4),
    }
