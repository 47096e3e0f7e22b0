"""The Protocols that the worker needs. Adapters match them by shape."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from enricher.errors import InvalidArticle
from enricher.records import Batch, DeadLetter, Partition, RawRecord, Release, Start, Ticket, TokenizedArticle, Window
from enricher.runtime.wakeup import StopEvent
from enricher.stats.snapshot import Connection

Tokenized = Sequence[tuple[Ticket, TokenizedArticle | InvalidArticle]]
"""What the tokenizer pool gives back for a handful of tickets."""


class Scheduler(Protocol):
    """Which windows go through the model together, and when. Nothing here blocks."""

    @property
    def queued_windows(self) -> int:
        """How many wait."""

    @property
    def queued_tokens(self) -> int:
        """Their tokens."""

    @property
    def max_batch_tokens(self) -> int:
        """The budget of a batch, as it is now."""

    def add(self, windows: Sequence[Window]) -> None:
        """Queue windows."""

    def next_due_s(self) -> float | None:
        """When the next batch is due; None if nothing waits."""

    def next_batch(self, now_s: float) -> Batch | None:
        """The batch to run next, or None while it is better to wait."""

    def drop_forgotten(self) -> int:
        """Remove the windows whose ticket was forgotten; returns how many."""

    def lower_budget(self, max_batch_tokens: int) -> None:
        """No batch has more tokens than this from now on."""


class PartitionListener(Protocol):
    """Told by the source, inside its `poll`, in the loop's own thread."""

    def assigned(self, partitions: Sequence[Partition]) -> None:
        """These are ours now. Does not block."""

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """Taken in an orderly rebalance: the last chance to publish for them. May block for one transaction."""

    def lost(self, partitions: Sequence[Partition]) -> None:
        """Taken already: nothing may be published for them. Does not block."""


class Source(Protocol):
    """Where records come from."""

    def open(self, listener: PartitionListener) -> None:
        """Connect. May block; raises TransactionTrouble, after which it may be called again, or a FatalError."""

    def poll(self, limit: int, timeout_s: float) -> Sequence[RawRecord]:
        """At most `limit` records; blocks up to `timeout_s` for the first; may call the listener."""

    def pause(self) -> None:
        """No records until `resume`, though `poll` still serves the listener. Does not block."""

    def resume(self) -> None:
        """Records again. Does not block."""

    def positions(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """The next offset to be delivered of each, past offsets that carry no record; unknown ones are left out."""

    def start_of(self, partition: Partition) -> Start | None:
        """Where reading began after the assignment or the last rewind; known once a record was delivered. None: no marks."""

    def rewind(self) -> None:
        """Go back to the committed offsets. Blocks within its own bound; raises TransactionTrouble."""

    def caught_up(self) -> bool:
        """True when everything that there was to read is read and committed. May block briefly."""

    def connection(self) -> Connection:
        """How it stands with the broker. Does not block, and may be called from any thread."""

    def close(self) -> None:
        """Leave. Blocks within its own bound."""


class Sink(Protocol):
    """Where outcomes go, together with the offsets that they belong to: all or nothing."""

    def open(self) -> None:
        """Connect. Blocks; raises TransactionTrouble, after which it may be called again, or a FatalError."""

    def publish(self, release: Release) -> Mapping[Ticket, DeadLetter]:
        """One transaction. Blocks within its own bound; raises TransactionTrouble or a FatalError.

        Returns the dead letters that were written instead of outcomes that are too large for their topic.
        """

    def serve(self) -> None:
        """Let the client deliver its events. Does not block, raises nothing; called once per turn of the loop."""

    def recover(self) -> None:
        """Settle what is unclear and be ready to publish again. Blocks; raises TransactionTrouble or a FatalError."""

    def close(self) -> None:
        """Blocks within its own bound."""


class Rivals(Protocol):
    """Knows whether another live process has our name."""

    def begin(self) -> None:
        """Note who has our name already. Called before we join the group. May block; does not raise TransactionTrouble."""

    def settle(self, since_s: float, stopping: StopEvent) -> None:
        """Return when our producer was fenced, at `since_s`, by no live newer process. Blocks for some seconds.

        Raises Fenced where it was, TransactionTrouble where nobody can tell yet or the worker is asked to stop.
        """


class Tracing(Protocol):
    """Spans of articles, batches and transactions. Nothing here blocks or raises."""

    def arrived(self, tickets: Sequence[Ticket]) -> None:
        """Records were read: decide which are traced, and what of a trace their outputs pass on."""

    def submitted(self, batch: Batch) -> None:
        """A batch goes to the model."""

    def completed(self, batch: Batch) -> None:
        """It came back."""

    def transaction(self, tickets: Sequence[Ticket]) -> AbstractContextManager[dict[Ticket, DeadLetter]]:
        """Around the transaction that publishes these tickets; they are done when it ends without an exception.

        Gives a mapping for the dead letters that were written instead of outcomes.
        """
