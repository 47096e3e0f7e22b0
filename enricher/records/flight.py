"""What is under way between the two: the ticket of each article, its windows, and what the model says about them.

Everything is frozen but `Ticket`, which is filled in as its article moves on and is `finish`ed
exactly once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from enricher.records.articles import (
    Article,
    Float32Array,
    Headers,
    Int32Array,
    Outcome,
    Partition,
    RawRecord,
    TokenizedArticle,
    hot_record,
)


class OwnedLabels(NamedTuple):
    """What one window says about the tokens `[start, start + len(labels))` of its article, those that it owns.

    `labels int32`, `scores float32`, the probability of the label; views of what the model gave back.
    """

    start: int
    labels: Int32Array
    scores: Float32Array


@dataclass(slots=True, eq=False)
class Ticket:
    """One in-flight record, from its arrival to its commit. The only mutable record.

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

    ticket: Ticket
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
class Mark:
    """Written with a committable offset: how many processes took up work there, and how many with one record alone."""

    attempts: int = 0
    alone: int = 0


@dataclass(frozen=True, slots=True)
class Start:
    """Where reading of an assigned partition began, and the mark that stood beside that offset."""

    offset: int
    mark: Mark = Mark()


@dataclass(frozen=True, slots=True)
class Release:
    """Finished tickets in offset order, and the committable offsets that belong to exactly these.

    `committable` may name partitions without a ticket here: their position moved on over offsets that carry no
    record (transaction markers), or `marks` has something to say of an offset that is committed already.
    """

    tickets: Sequence[Ticket]
    committable: Mapping[Partition, int]
    marks: Mapping[Partition, Mark] = field(default_factory=dict)
    """Of partitions in `committable`; one without a mark gets the empty one."""

    @property
    def empty(self) -> bool:
        """True where there is nothing to say to the broker."""
        return not self.committable
