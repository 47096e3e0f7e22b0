"""In-flight data: the ticket of each record, its windows, batches and their results, releases.

All of it is frozen, except for a `Ticket`, which is filled in step by step and finished exactly once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy.typing as npt

from enricher.worker.records.input_records import (
    Article,
    Float32Array,
    Headers,
    Int32Array,
    Partition,
    RawRecord,
    TokenizedArticle,
    hot_record,
)
from enricher.worker.records.outcomes import DeadLetter, EnrichedRecord, Outcome, Skipped

Keep = Callable[[EnrichedRecord], EnrichedRecord | DeadLetter]
"""Converts a record to the form in which it is kept until it is published, or refuses it."""


class OwnedLabels(NamedTuple):
    """The labels of the tokens that one window owns: `[start, start + len(labels))` of its article.

    `labels int32`, `scores float32` (the probability of the label); both are views of the model's output.
    """

    start: int
    labels: Int32Array
    scores: Float32Array


class OwnedRow(NamedTuple):
    """The answer of a head about one window as a whole: `row float32 [values]`, logits or a vector.

    The window owns `tokens` tokens of its article, from `start` on: its weight in the article.
    """

    start: int
    tokens: int
    row: Float32Array


Owned = OwnedLabels | OwnedRow


@dataclass(slots=True, eq=False)
class Ticket:
    """One in-flight record, from its arrival to its commit.

    Once a ticket is `forgotten` (a rebalance, a recovery), late results for it are dropped.
    """

    raw: RawRecord
    arrived_s: float
    article: Article | None = None
    outcome: Outcome | None = None
    forgotten: bool = False
    trace: Headers = ()
    """Trace headers of its output (W3C `traceparent`, `tracestate`)."""
    span: object = None
    """Set and read by tracing only."""
    unpacked_bytes: int = 0
    """Memory of the article beyond its record: a document in another format, text that was compressed."""
    unmeasured: bool = False
    """Its article is in a language that one of its models was not measured in."""
    tokens: TokenizedArticle | None = None
    answers: list[Sequence[Owned]] = field(default_factory=list)
    """The answers of the heads so far: for each window one answer per head, in the order of finished batches."""
    windows: int = 0
    windows_left: int = 0

    def finish(self, outcome: Outcome) -> None:
        """Set the outcome, which is final."""
        assert self.outcome is None, "a ticket is finished once"
        self.outcome = outcome
        # The ticket may wait for older ones of its partition, and does not need the arrays meanwhile.
        self.answers, self.tokens = [], None

    @property
    def live(self) -> bool:
        """True while the outcome is needed and still missing."""
        return self.outcome is None and not self.forgotten


@hot_record(eq=False)
class Window:
    """A run of an article's tokens as model input: `ids` is `int32 [length]`, special tokens included.

    Token `i` of the article (counted over all its fields, without special tokens) is token `i - start + specials_before` of
    the window. The window owns the tokens `[own_start, own_stop)`; its labels for other tokens are ignored.
    """

    ticket: Ticket
    ids: Int32Array
    start: int
    own_start: int
    own_stop: int
    specials_before: int
    arrived_s: float

    @property
    def length_tokens(self) -> int:
        """Tokens, special tokens included."""
        return len(self.ids)

    def owned_tokens(self, first: int) -> slice:
        """The tokens that the window owns, in an array where the window's first token is at index `first`."""
        shift = first + self.specials_before - self.start
        return slice(self.own_start + shift, self.own_stop + shift)


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Windows of similar length that go through the model together."""

    windows: tuple[Window, ...]

    @property
    def length_tokens(self) -> int:
        """Length of the longest window, to which others are padded."""
        return max(window.length_tokens for window in self.windows)

    @property
    def real_tokens(self) -> int:
        """The sum of the window lengths."""
        return sum([len(window.ids) for window in self.windows])

    @property
    def padded_tokens(self) -> int:
        """Number of windows times the longest length: what a padding graph variant computes."""
        return len(self.windows) * self.length_tokens


@dataclass(frozen=True, slots=True, eq=False)
class TokenLabels:
    """The answers of a token classification head about a run: `labels int32 [tokens]` and `scores float32 [tokens]`.

    Values between windows are undefined.
    """

    names: ClassVar[tuple[str, ...]] = ("labels", "scores")
    """The names of the graph's outputs for answers of this type."""
    labels: Int32Array
    scores: Float32Array

    @classmethod
    def of(cls, outputs: Iterator[npt.NDArray[Any]]) -> TokenLabels:
        """Take the next outputs of a run."""
        return cls(next(outputs).reshape(-1), next(outputs).reshape(-1))

    @property
    def numbers(self) -> Float32Array:
        """The numbers that must be finite."""
        return self.scores

    def owned_by(self, window: Window, _index: int, start: int) -> OwnedLabels:
        """The labels of the tokens that a window owns; its first token is at `start`."""
        tokens = window.owned_tokens(start)
        return OwnedLabels(window.own_start, self.labels[tokens], self.scores[tokens])

    def numbers_about(self, window: Window, _index: int, start: int) -> Float32Array:
        """The part of `numbers` that is about one window."""
        return self.scores[start : start + len(window.ids)]

    def select(self, _indices: Sequence[int]) -> TokenLabels:
        """The output about some windows, which is the whole output: windows are found by their starts."""
        return self


@dataclass(frozen=True, slots=True, eq=False)
class WindowRows:
    """The answers of a head about each window of a run as a whole: `rows float32 [windows, values]`, logits or vectors."""

    names: ClassVar[tuple[str, ...]] = ("rows",)
    """The names of the graph's outputs for answers of this type."""
    rows: Float32Array

    @classmethod
    def of(cls, outputs: Iterator[npt.NDArray[Any]]) -> WindowRows:
        """Take the next outputs of a run."""
        return cls(next(outputs))

    @property
    def numbers(self) -> Float32Array:
        """The numbers that must be finite."""
        return self.rows

    def owned_by(self, window: Window, index: int, _start: int) -> OwnedRow:
        """The row of the window at `index` of the run."""
        return OwnedRow(window.own_start, window.own_stop - window.own_start, self.rows[index])

    def numbers_about(self, _window: Window, index: int, _start: int) -> Float32Array:
        """The part of `numbers` that is about one window."""
        return self.rows[index : index + 1]

    def select(self, indices: Sequence[int]) -> WindowRows:
        """The output about some windows of the run."""
        return WindowRows(self.rows[indices])


HeadOutput = TokenLabels | WindowRows


@dataclass(frozen=True, slots=True, eq=False)
class RunOutput:
    """The model's output for one run: the answers of each head, in the order of the heads.

    Token `i` of a window, special tokens included, is at the window's entry in `starts` plus `i`.
    """

    windows: Sequence[Window]
    starts: Sequence[int]
    heads: Sequence[HeadOutput]


@dataclass(frozen=True, slots=True, eq=False)
class WindowFailure:
    """The model failed on this window even alone: its article becomes a dead letter, if it needs one of the heads."""

    window: Window
    error_type: str
    message: str
    heads: Sequence[int] | None = None
    """The heads that failed, by their index; None if all did. A run has the answers of the others."""


@dataclass(frozen=True, slots=True, eq=False)
class BatchResult:
    """The result of a batch: each of its windows is in a run or in `failures`; in both if only some heads failed."""

    batch: Batch
    runs: Sequence[RunOutput]
    failures: Sequence[WindowFailure] = ()
    fits_tokens: int | None = None
    """Tokens of the largest part that fit, as the budget counts them, if the batch ran out of device memory; else None."""


@dataclass(frozen=True, slots=True)
class Mark:
    """How many processes began work at a committed offset, and how many of them with that record alone in flight."""

    attempts: int = 0
    alone: int = 0


@dataclass(frozen=True, slots=True)
class ReachedLimit:
    """The limit of dead letters at which a worker ended; it is committed with the offset of the letter beyond the limit.

    Only the limit that was reached is not 0. `reason`: stage and type of the dead letter that was not written.
    """

    in_a_row: int = 0
    in_window: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Start:
    """The offset at which reading of a partition began, and what was committed with it."""

    offset: int
    mark: Mark = Mark()
    reached_limit: ReachedLimit = ReachedLimit()


@dataclass(frozen=True, slots=True)
class Release:
    """Finished tickets in offset order, and the committable offsets that belong to exactly these tickets.

    `committable` may contain partitions without a ticket: their position moved past offsets without a record (transaction
    markers), or a new mark is committed with the same offset.
    """

    tickets: Sequence[Ticket]
    committable: Mapping[Partition, int]
    marks: Mapping[Partition, Mark] = field(default_factory=dict)
    """The marks of partitions in `committable`; the default is the empty mark."""
    reached_limits: Mapping[Partition, ReachedLimit] = field(default_factory=dict)
    """The limits of dead letters that were reached at offsets in `committable`."""

    @property
    def empty(self) -> bool:
        """True if there is nothing to commit."""
        return not self.committable

    @property
    def written(self) -> Sequence[Ticket]:
        """The tickets that have an output."""
        return [ticket for ticket in self.tickets if not isinstance(ticket.outcome, Skipped)]

    def first(self, count: int) -> Release:
        """The first tickets only, and the offsets of their partitions, without marks."""
        tickets = self.tickets[:count]
        return Release(tickets, {ticket.raw.partition: ticket.raw.offset + 1 for ticket in tickets})
