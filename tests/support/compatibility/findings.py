"""What a comparison of two schemas finds, and how much each finding weighs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from enricher.errors import EnricherError


class SchemaUnusable(EnricherError):
    """A text is no schema of its type, or needs what is not there. The message says what is wrong."""


class Weight(Enum):
    """Who refuses a finding. `levels` decides by it what counts."""

    BREAKS = "the registry and our promise"
    READER_KNOWS_MORE = "the registry; our promise allows it if the reader is the newer schema"
    WRITER_KNOWS_MORE = "the registry; our promise allows it if the writer is the newer schema"
    REGISTRY = "the registry, which compares forms and not meanings; our promise allows it"
    PROMISED = "our promise; the registry accepts it"


class Sides(NamedTuple):
    """What the writer's and the reader's schema are called in sentences: `old` and `new`, or the other way round."""

    writer: str
    reader: str


@dataclass(frozen=True, slots=True)
class Finding:
    """One difference that matters. `place`: a path into the schema, e.g. `/properties/entities/items`; `/` is the root."""

    place: str
    text: str
    weight: Weight = Weight.BREAKS


@dataclass(frozen=True, slots=True)
class Violation:
    """A change that is not allowed."""

    place: str
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"
