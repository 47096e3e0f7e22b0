"""The errors of the package, grouped by what the caller must do.

    EnricherError
    ├── InvalidArticle          dead-letter the record and go on
    ├── SchemaPending           keep the record in flight until its schema was fetched
    ├── SearchUnavailable       send the same to the search index again later; some of it may be written already
    ├── TransactionTrouble      forget what is in flight, recover with a new producer, rewind
    │   ├── RefusedOutput       the same, and dead-letter the outputs that the broker refuses
    │   ├── RefusedBatch        the same, and write each record alone once; then BrokerError
    │   ├── RefusedSubstitutes  the same, and dead-letter the outputs that are too large for their topic
    │   ├── MissingTopic        the same; fatal at the start if the topic stays missing
    │   └── ProducerFenced      the same in a command; a worker ends: Fenced
    └── FatalError              log the message and exit with `exit_code`; a restart begins at the committed offsets
        ├── SettingsError       2   before connecting
        ├── ModelError          3   the model or its device cannot be used
        ├── BrokerError         4   the broker refuses us: rights, missing topic, wrong password; or the schema registry
        │   └── NoAnswer            the same, where no broker answers
        ├── Fenced              5   a newer producer has our transactional id
        ├── RecoveryExhausted   6   the broker did not come back within the bound
        ├── Stalled             7   no progress within the bound, or work was lost inside the worker
        ├── NotEnriched        10   no line of a file could be enriched (`enrich`)
        ├── TooManyDeadLetters 12   dead letters reached a limit, and none beyond it is committed
        └── OutputClosed        0   the reader of our output has gone (`| head`): a clean end

Each package maps foreign errors (`KafkaException`, ONNX Runtime's) to these in one place; none leaves it unmapped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from enricher.worker.records import DeadLetter, Outcome, Ticket


class EnricherError(Exception):
    """The base of all errors that this package raises on purpose."""


class InvalidArticle(EnricherError):
    """The input can never be enriched. The message names the rule that the input breaks, and never contains its text.

    `foreign_type`: the type of the error that a team's own code raised (`articles.transform`, `output.transform`); then the
    message is that error's, and may contain anything.
    """

    def __init__(
        self,
        message: str,
        *,
        stage: Literal["decode", "transform", "tokenize", "publish"] = "decode",
        foreign_type: str | None = None,
    ) -> None:
        super().__init__(message)
        self.stage: Literal["decode", "transform", "tokenize", "publish"] = stage
        self.foreign_type = foreign_type


class SchemaPending(EnricherError):
    """The schema of a record is being fetched. `reference`: how the record names it."""

    def __init__(self, reference: Hashable) -> None:
        super().__init__(f"schema {reference} is being fetched")
        self.reference = reference


class SearchUnavailable(EnricherError):
    """The search index has not answered, or has too much to do. Some of the documents sent may have been written."""


class TransactionTrouble(EnricherError):
    """A transaction failed, or its outcome is unknown."""


class RefusedOutput(TransactionTrouble):
    """The broker will never accept these outputs: they are too large, or against a rule of the topic.

    `outcomes`: the refused tickets, and for each the outcome that was written.
    """

    def __init__(self, message: str, outcomes: Mapping[Ticket, Outcome]) -> None:
        super().__init__(message)
        self.outcomes = outcomes


class RefusedBatch(TransactionTrouble):
    """The broker refused a batch of several records for its size, which says nothing about any single record."""


class RefusedSubstitutes(TransactionTrouble):
    """The dead letters that would replace outputs too large for their topic would exceed a limit of dead letters.

    `letters`: these dead letters. Once they are the outcomes of their tickets, the release can be cut.
    """

    def __init__(self, letters: Mapping[Ticket, DeadLetter]) -> None:
        super().__init__(f"{len(letters)} outputs are too large for their topic, and dead letters are near their limit")
        self.letters = letters


class MissingTopic(TransactionTrouble):
    """The broker does not know the topic. A broker that has just started knows none for a while."""


class ProducerFenced(TransactionTrouble):
    """The broker gave our transactional id a newer epoch; the client cannot tell for which process."""


class FatalError(EnricherError):
    """The process must end; the message says what to do."""

    exit_code: ClassVar[int] = 1


class SettingsError(FatalError):
    """A setting is missing, unknown, or contradicts another one."""

    exit_code = 2


class ModelError(FatalError):
    """The model cannot be loaded, or its device cannot run it."""

    exit_code = 3


class BrokerError(FatalError):
    """The broker refuses this client permanently: a right, a topic or a credential is missing.

    Also raised if the schema registry refuses, because our schema is not registered or may not be, or the search index.
    """

    exit_code = 4


class NoAnswer(BrokerError):
    """A command got no answer, or one that may change: a broker is away or elects a leader. A worker would recover."""


class Fenced(FatalError):
    """A newer producer has our transactional id: another process of our name, or nobody after a broker's timeout.

    Do not fence it in turn: two processes would fence each other forever. A restart of the process is the recovery.
    """

    exit_code = 5


class RecoveryExhausted(FatalError):
    """Recovery did not succeed within its bound.

    `recovers`: recoveries succeed, but no transaction after them.
    """

    exit_code = 6

    def __init__(self, message: str, *, recovers: bool = False) -> None:
        super().__init__(message)
        self.recovers = recovers


class Stalled(FatalError):
    """No progress within a bound, or work was lost inside the worker.

    `undelivered`: a partition has records and delivers none of them.
    """

    exit_code = 7

    def __init__(self, message: str, *, undelivered: bool = False) -> None:
        super().__init__(message)
        self.undelivered = undelivered


class NotEnriched(FatalError):
    """No line of a file could be enriched, or with --strict at least one could not. The outputs are written."""

    exit_code = 10


class TooManyDeadLetters(FatalError):
    """Dead letters reached one of the limits `dead_letters.*`. Everything within the limit is committed, nothing beyond."""

    exit_code = 12


class OutputClosed(FatalError):
    """The reader of our output has gone (`| head`)."""

    exit_code = 0
