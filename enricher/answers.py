"""Answers for a Python program: for each article a `Record`, or a `Refusal` with the reason.

A record is the bytes that the worker writes; its fields are parsed when they are first asked for.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeVar

import numpy as np
import orjson

from enricher.worker.records import Coverage, Float32Array, ModelCard

Finding = TypeVar("Finding")


@dataclass(frozen=True, slots=True)
class Entity:
    """A named entity: `[start, end)` of the article's title or body, in Unicode code points, is `text`.

    In a body that was read as HTML (`Record.body_format`), the slice has markup, and `text` is what a reader sees of it.

    `score`: its probability. `task`: the task that found it, if several find entities. `ids`: the entries of the catalogue
    that it may be, each with how it matched; `id`: the one that it is, `catalogue_name` its name, and `why` it is this one.
    `source`: `catalogue` if no model found it, but the catalogue in the text; then the score is 1.
    """

    field: Literal["title", "body"]
    start: int
    end: int
    text: str
    label: str
    score: float
    task: str | None = None
    ids: tuple[Mapping[str, str], ...] = ()
    id: str | None = None
    why: str | None = None
    catalogue_name: str | None = None
    source: str | None = None

    @classmethod
    def of(cls, *, ids: Iterable[Mapping[str, str]] = (), **fields: Any) -> Entity:  # noqa: ANN401  fields of a record
        """The entity that a record lists with these fields."""
        return cls(ids=tuple(ids), **fields)


@dataclass(frozen=True, slots=True)
class Classification:
    """A class of the article, with its probability."""

    task: str
    label: str
    score: float


@dataclass(frozen=True, slots=True, eq=False)
class Embedding:
    """A vector of the article: `float32 [dimensions]`, also where the record has float16."""

    task: str
    pooling: str
    vector: Float32Array

    @classmethod
    def of(
        cls, task: str, pooling: str, vector: list[float] | None = None, vector_float16: str = "", **_more: object
    ) -> Embedding:
        """The embedding that a record lists with these fields."""
        halves = np.frombuffer(b64decode(vector_float16), "<f2")
        return cls(task, pooling, halves.astype(np.float32) if vector is None else np.array(vector, np.float32))


@dataclass(frozen=True, slots=True)
class Regression:
    """A number for the article."""

    task: str
    value: float


@dataclass(frozen=True, slots=True)
class Refusal:
    """An article that cannot be enriched; if it came from a topic, it would be a dead letter.

    `offset`: its number among the articles, from 0. `stage`: `decode`, `transform`, `tokenize`, `inference` or `publish`.
    `reason` contains no text of the article, unless your own code says it.
    """

    offset: int
    stage: str
    error_type: str
    reason: str


_ENTITIES_SHOWN = 10
"""How many entities the `repr` of a record names, so that it stays a few lines."""


@dataclass(frozen=True, repr=False)
class Record:
    """An enriched article. `offset`: its number among the articles, from 0."""

    offset: int
    value: bytes
    reason: None = None
    """A record has no reason, a refusal has one: `if answer.reason is None` distinguishes them, for type checkers too."""

    def __repr__(self) -> str:
        shown = [f"{entity.label} {entity.text!r}" for entity in self.entities[:_ENTITIES_SHOWN]]
        further = len(self.entities) - len(shown)
        entities = ", ".join([*shown, f"and {further} more"] if further else shown)
        return f"Record(offset={self.offset}, id={self.id!r}, entities=[{entities}])"

    def json(self) -> bytes:
        """The record as the worker writes it to its topic, byte for byte: JSON in UTF-8 (`schemas/`)."""
        return self.value

    @cached_property
    def fields(self) -> Mapping[str, Any]:
        """The parsed record, with the fields of the article that it repeats."""
        parsed: dict[str, Any] = orjson.loads(self.value)
        return parsed

    @property
    def id(self) -> str:
        """The article's id."""
        return str(self.fields["id"])

    @cached_property
    def entities(self) -> tuple[Entity, ...]:
        """The entities, title first, in the order of the text."""
        return self._list_of("entities", Entity.of)

    @cached_property
    def classifications(self) -> tuple[Classification, ...]:
        """The classes that the tasks found, the most probable first."""
        return self._list_of("classifications", Classification)

    @cached_property
    def embeddings(self) -> tuple[Embedding, ...]:
        """The vectors, one for each task of the kind."""
        return self._list_of("embeddings", Embedding.of)

    @cached_property
    def regressions(self) -> tuple[Regression, ...]:
        """The numbers, one for each task of the kind."""
        return self._list_of("regressions", Regression)

    @property
    def body_format(self) -> str:
        """How the body was read: `text` or `html`."""
        return str(self.fields.get("body_format", "text"))

    @property
    def dropped_fields(self) -> tuple[str, ...]:
        """The optional fields of the article that were wrong, so it was enriched without them."""
        return tuple(self.fields.get("dropped_fields", ()))

    @property
    def coverage(self) -> Coverage:
        """How much of the article the model saw."""
        return Coverage(**self.fields["coverage"])

    @property
    def model(self) -> ModelCard:
        """The model that made the record."""
        return ModelCard(**self.fields["model"])

    def _list_of(self, name: str, make: Callable[..., Finding]) -> tuple[Finding, ...]:
        return tuple(make(**each) for each in self.fields.get(name, ()))
