"""What moves through the worker: articles, windows, batches, entities, and the ticket that follows each article.

Plain data only. Nothing here knows Kafka, ONNX Runtime or the clock. Everything is frozen but one class:
`InFlight`, the ticket, which is filled in as its article moves on and is `finish`ed exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypedDict, TypeVar, dataclass_transform

import numpy as np
import numpy.typing as npt

FieldName = Literal["title", "body"]
Headers = tuple[tuple[str, bytes | None], ...]
Int32Array = npt.NDArray[np.int32]
Float32Array = npt.NDArray[np.float32]
_Record = TypeVar("_Record")


@dataclass_transform(frozen_default=True)
def hot_record(*, eq: bool = True) -> Callable[[type[_Record]], type[_Record]]:
    """Decorate a record of which an article has many: a slotted dataclass that only the type checker keeps frozen.

    A frozen one sets each of its fields through a call, and takes three times as long to make.
    """
    return dataclass(slots=True, eq=eq, unsafe_hash=eq)


class Partition(NamedTuple):
    """One partition of a topic. A named tuple, because it is the key of every hot dictionary and hashes in C."""

    topic: str
    number: int


@hot_record()
class RawRecord:
    """One input record as the source delivered it, untouched: what a dead letter gives back."""

    partition: Partition
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_s: float | None = None
    """When the publisher wrote it, in seconds since the epoch; None where the broker does not know."""

    @property
    def size_bytes(self) -> int:
        """Bytes of key and value, which is what holding the record in memory costs."""
        return len(self.key or b"") + len(self.value or b"")


@hot_record()
class Article:
    """A decoded input record: its texts, and the metadata that the enriched record repeats."""

    id: str
    title: str
    body: str
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def text(self, field_name: FieldName) -> str:
        """The original text that offsets of `field_name` count in, in Unicode code points."""
        return self.title if field_name == "title" else self.body


class TokenSpans(Protocol):
    """Where the tokens of one text stand in it. Asked only about tokens in which something was found."""

    def word_of(self, token: int, /) -> int:
        """The word that a token belongs to; never decreasing from token to token."""
        ...

    def chars_of(self, token: int, /) -> tuple[int, int]:
        """Half-open, in Unicode code points of the original text."""
        ...


@hot_record(eq=False)
class TokenizedField:
    """One text of an article as tokens: `ids` is `int32 [tokens]`, without special tokens."""

    name: FieldName
    ids: Int32Array
    spans: TokenSpans


@hot_record()
class TokenizedArticle:
    """The tokens of an article, title first, then body."""

    fields: tuple[TokenizedField, ...]
    truncated: bool = False
    """True where tokens above `max_article_tokens` were left out."""

    @property
    def length_tokens(self) -> int:
        """Tokens of all fields together, special tokens not counted."""
        return sum(len(part.ids) for part in self.fields)


class Entity(TypedDict):
    """A named entity: `article.text(field)[start:end] == text`, half-open, in Unicode code points.

    A dictionary, its names in this order: an article has many, and this is written as it is.
    """

    field: FieldName
    start: int
    end: int
    text: str
    label: str
    score: float  # a probability, to the fourth decimal


@hot_record()
class Coverage:
    """How much of an article the model saw."""

    tokens: int
    windows: int
    truncated: bool


@hot_record()
class EnrichedRecord:
    """What the model found in one article."""

    article: Article
    entities: Sequence[Entity]
    coverage: Coverage


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Why an input can never succeed. `message` never holds text of the article."""

    stage: Literal["decode", "tokenize", "inference", "publish"]
    error_type: str
    message: str
    attempts: int = 1


@dataclass(frozen=True, slots=True)
class Tombstone:
    """The input had no value: its key is deleted downstream as well."""


Outcome = EnrichedRecord | DeadLetter | Tombstone


@dataclass(frozen=True, slots=True)
class ModelCard:
    """Which model made a record."""

    name: str
    digest: str
    precision: str


class OwnedLabels(NamedTuple):
    """What one window says about the tokens `[start, start + len(labels))` of its article, those that it owns.

    `labels int32`, `scores float32`, the probability of the label; views of what the model gave back.
    """

    start: int
    labels: Int32Array
    scores: Float32Array


@dataclass(slots=True, eq=False)
class InFlight:
    """The ticket of one article from its arrival to its commit: the one mutable record.

    Windows hold the ticket itself. After a rebalance it is `forgotten`, and a late result that lands on it is dropped.
    """

    raw: RawRecord
    arrived_s: float
    article: Article | None = None
    tokens: TokenizedArticle | None = None
    answers: list[OwnedLabels] = field(default_factory=list)
    """What its windows said so far, in the order in which they came back."""
    windows: int = 0
    windows_left: int = 0
    outcome: Outcome | None = None
    forgotten: bool = False
    trace: Headers = ()
    """The headers of its trace (W3C `traceparent`, `tracestate`) that go with its output."""
    span: object = None
    """The tracing's own."""

    def finish(self, outcome: Outcome) -> None:
        """Say how it ended. Only once: a second answer for one article would be a bug."""
        assert self.outcome is None, "a ticket is filled once"
        self.outcome = outcome

    @property
    def live(self) -> bool:
        """True while someone still waits for this ticket's outcome."""
        return self.outcome is None and not self.forgotten


@hot_record(eq=False)
class Window:
    """A run of an article's tokens as the model takes it: `ids` is `int32 [length]`, special tokens included.

    Token `i` of the article (counted over all its fields, special tokens not counted) is token
    `i - start + specials_before` of the window. The window's labels count for `[own_start, own_stop)` only.
    """

    ticket: InFlight
    ids: Int32Array
    start: int
    own_start: int
    own_stop: int
    specials_before: int
    arrived_s: float

    @property
    def length_tokens(self) -> int:
        """Tokens of the window, special tokens included."""
        return len(self.ids)


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Windows of similar length that go through the model together."""

    windows: tuple[Window, ...]

    @property
    def length_tokens(self) -> int:
        """Length of the longest window, to which the others are padded."""
        return max(window.length_tokens for window in self.windows)

    @property
    def real_tokens(self) -> int:
        """What the user asked for: the sum of the window lengths."""
        return sum([len(window.ids) for window in self.windows])

    @property
    def padded_tokens(self) -> int:
        """What the device computes: windows x length of the longest."""
        return len(self.windows) * self.length_tokens


@dataclass(frozen=True, slots=True, eq=False)
class RunLabels:
    """The model's answer for the windows of one run: `labels int32 [tokens]`, `scores float32 [tokens]`, as whole arrays.

    Token `i` of a window, special tokens included, is at its start + `i`. What is between windows means nothing.
    """

    windows: Sequence[Window]
    starts: Sequence[int]
    labels: Int32Array
    scores: Float32Array


@dataclass(frozen=True, slots=True, eq=False)
class WindowFailure:
    """The model could not answer for this window, alone: its article becomes a dead letter."""

    window: Window
    error_type: str
    message: str


@dataclass(frozen=True, slots=True, eq=False)
class BatchResult:
    """What came back for a batch: each of its windows is in one of the runs, or failed."""

    batch: Batch
    runs: Sequence[RunLabels]
    failures: Sequence[WindowFailure] = ()
    fits_tokens: int | None = None
    """Padded tokens of the largest part that went through, where the batch ran out of the device's memory; else None."""


@dataclass(frozen=True, slots=True)
class Release:
    """Finished tickets in offset order, and the committable offsets that belong to exactly these.

    `committable` may name partitions without a ticket here: their position moved on over offsets that carry no
    record (transaction markers).
    """

    tickets: Sequence[InFlight]
    committable: Mapping[Partition, int]

    @property
    def empty(self) -> bool:
        """True where there is nothing to say to the broker."""
        return not self.committable
