"""The Protocols of the parts that the loop is given. Adapters match them structurally."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from enricher.errors import InvalidArticle
from enricher.worker.records import (
    Batch,
    DeadLetter,
    Partition,
    RawRecord,
    Release,
    Start,
    Ticket,
    TokenizedArticle,
    Window,
)
from enricher.worker.stats import Connection, SchemaState

Tokenized = Sequence[tuple[Ticket, TokenizedArticle | InvalidArticle]]
"""The tokenizer's result for the tickets of one call."""


class Scheduler(Protocol):
    """Decides which windows go through the model together, and when. Nothing here blocks."""

    @property
    def queued_windows(self) -> int:
        """How many windows wait."""

    @property
    def queued_tokens(self) -> int:
        """The sum of the lengths of the windows that wait."""

    @property
    def max_batch_tokens(self) -> int:
        """The most tokens that a batch may have now."""

    def limit_budget(self, max_batch_tokens: int) -> None:
        """Limit later batches to this many tokens, at most the configured ones."""

    def tokens_of(self, batch: Batch) -> int:
        """The tokens that a batch takes of the budget."""

    def add(self, windows: Sequence[Window]) -> None:
        """Queue windows; their waiting time counts from `arrived_s`."""

    def next_due_s(self) -> float | None:
        """When the next batch is due, by the worker's clock; None if nothing waits."""

    def next_batch(self, now_s: float, *, idle_threads: int, load: float) -> Batch | None:
        """The batch to run now; None if it is better to wait.

        `idle_threads`: how many threads of the device have nothing to do; `load`: how busy the worker is, 0 to 1.
        """

    def drop_forgotten(self) -> None:
        """Remove the windows of forgotten tickets."""


class Schemas(Protocol):
    """The schemas for which records wait (`SchemaPending`). Another thread fetches them; no call waits for the network."""

    def take_answered(self) -> Collection[Hashable]:
        """Schemas that were fetched or refused since the last call. Does not block."""

    def abandon(self, references: Collection[Any]) -> None:
        """Stop fetching these schemas: no record waits for them any more. Does not block."""

    def state(self) -> SchemaState:
        """The state of the registry's schemas, for telemetry. Safe in any thread."""

    def close(self) -> None:
        """Stop fetching schemas. Blocks within its bound."""


class PartitionListener(Protocol):
    """Called by the source, inside `poll` and `close`, in the loop's thread."""

    def assigned(self, partitions: Sequence[Partition]) -> None:
        """Take over these partitions, which this worker owns now. Does not block."""

    def revoked(self, partitions: Sequence[Partition]) -> None:
        """Give up these partitions in an orderly rebalance; publish for them now or never. May block for one transaction."""

    def lost(self, partitions: Sequence[Partition]) -> None:
        """Forget these partitions, which were taken without being asked: publish nothing for them. Does not block."""


class Source(Protocol):
    """Delivers records."""

    def open(self, listener: PartitionListener) -> None:
        """Connect. May block. Raises FatalError, or TransactionTrouble, after which it may be called again."""

    def poll(self, limit: int, timeout_s: float) -> Sequence[RawRecord]:
        """Return at most `limit` records; block up to `timeout_s` for the first one. May call the listener."""

    def pause(self) -> None:
        """Return no records until `resume`; `poll` still calls the listener. Does not block."""

    def resume(self) -> None:
        """Return records again. Does not block."""

    def hold(self, partitions: Collection[Partition]) -> None:
        """Return no records of these partitions, and records of all others again. Called before each poll; does not block.

        A rewind, and giving a partition up, end its hold. Raises TransactionTrouble.
        """

    def positions(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """The next offset to deliver of each partition, past offsets without a record; unknown positions are left out."""

    @property
    def waits_for_commit(self) -> bool:
        """True while a partition delivers nothing before its position is committed."""

    def start_of(self, partition: Partition) -> Start | None:
        """The offset at which reading began after the assignment or the last rewind; known once a record was delivered.

        None if the source keeps no marks.
        """

    def rewind(self) -> None:
        """Go back to the committed offsets. Blocks within its bound. Raises TransactionTrouble."""

    def caught_up(self) -> bool:
        """True once everything up to the end is read and committed, whatever has come since. May block briefly."""

    def connection(self) -> Connection:
        """The state of the connection with the broker. Does not block; safe in any thread."""

    def close(self) -> None:
        """Leave the group. Blocks within its bound."""


class Sink(Protocol):
    """Takes outcomes, atomically with the offsets that belong to them."""

    def open(self) -> None:
        """Connect. Blocks. Raises FatalError, or TransactionTrouble, after which it may be called again."""

    def publish(self, release: Release) -> Mapping[Ticket, DeadLetter]:
        """Publish in one transaction. Blocks within its bound. Raises TransactionTrouble or FatalError.

        Returns the dead letters that were written instead of outcomes that are too large for their topic.
        """

    def serve(self) -> None:
        """Let the client deliver its events; called once per turn of the loop. Does not block or raise."""

    def recover(self) -> None:
        """End the last transaction and get ready for the next. Blocks. Raises TransactionTrouble or FatalError."""

    def close(self) -> None:
        """Release the client. Blocks within its bound."""


class Tracing(Protocol):
    """Spans of articles, batches and transactions. Nothing here blocks or raises."""

    def begin_articles(self, tickets: Sequence[Ticket]) -> None:
        """Note that records were read: decide which are traced, and set the trace headers of their outputs."""

    def begin_batch(self, batch: Batch) -> None:
        """Note that a batch goes to the engine."""

    def end_batch(self, batch: Batch) -> None:
        """Note that the engine returned a batch."""

    def transaction(self, tickets: Sequence[Ticket]) -> AbstractContextManager[dict[Ticket, DeadLetter]]:
        """Wrap the transaction of these tickets; their spans end when it succeeds and are dropped when it raises.

        Yields a mapping to fill with the dead letters that were written instead of outcomes.
        """
