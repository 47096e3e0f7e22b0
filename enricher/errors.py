"""What can go wrong, grouped by what the caller must do about it.

    EnricherError
    ├── InvalidArticle          dead-letter the record, go on
    ├── TransactionTrouble      new producer, forget what is in flight, rewind
    │   ├── RefusedOutput       the same, and dead-letter the outputs that the broker refuses
    │   ├── MissingTopic        the same; at the start final, once it is missing for longer than a broker takes to know it
    │   └── ProducerFenced      the same, unless a newer process of our name is alive: then Fenced
    └── FatalError              say why, exit with `exit_code`; a restart begins at the committed offsets
        ├── SettingsError       2   before connecting
        ├── ModelError          3   the model or its device cannot be used
        ├── BrokerError         4   the broker refuses us: rights, missing topic, wrong password
        ├── Fenced              5   a newer process of the same name is alive
        ├── RecoveryExhausted   6   the broker did not come back within the bound
        ├── Stalled             7   no progress within the bound, or work that went missing
        ├── NotEnriched        10   a file without a line that could be enriched (`enrich`)
        └── OutputClosed        0   the reader of our output has gone (`| head`): a clean end

A room maps foreign errors (`KafkaException`, ONNX Runtime's) to these at its border; none leaves it unmapped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from enricher.records import Outcome, Ticket


class EnricherError(Exception):
    """Any error that this package raises on purpose."""


class InvalidArticle(EnricherError):
    """This input can never be enriched. The message names the rule that it breaks, never its text."""

    def __init__(self, message: str, *, stage: Literal["decode", "tokenize"] = "decode") -> None:
        super().__init__(message)
        self.stage: Literal["decode", "tokenize"] = stage


class TransactionTrouble(EnricherError):
    """A transaction failed, or nobody knows whether it did: recover by the one path."""


class RefusedOutput(TransactionTrouble):
    """The broker will never take these outputs: they are too large, or against a rule of the topic.

    `outcomes`: the refused tickets, and for each the outcome that was written.
    """

    def __init__(self, message: str, outcomes: Mapping[Ticket, Outcome]) -> None:
        super().__init__(message)
        self.outcomes = outcomes


class MissingTopic(TransactionTrouble):
    """The broker says that there is no such topic. One that has just started says so of every topic."""


class ProducerFenced(TransactionTrouble):
    """The broker has given our transactional id a newer epoch; the client cannot tell for whom."""


class FatalError(EnricherError):
    """This process cannot go on; the message says what to do."""

    exit_code: ClassVar[int] = 1


class SettingsError(FatalError):
    """A setting is missing, unknown or contradicts another."""

    exit_code = 2


class ModelError(FatalError):
    """The model cannot be loaded, or its device cannot run it."""

    exit_code = 3


class BrokerError(FatalError):
    """The broker refuses this client for good: a right, a topic or a credential is missing."""

    exit_code = 4


class Fenced(FatalError):
    """A newer process of our name is alive. Never fight for the transactional id."""

    exit_code = 5


class RecoveryExhausted(FatalError):
    """Recovery did not succeed within its bound."""

    exit_code = 6


class Stalled(FatalError):
    """The loop made no progress within its bound, or work went missing inside the worker."""

    exit_code = 7


class NotEnriched(FatalError):
    """Lines of a file could not be enriched: all of them, or more than were allowed. What was asked for is written."""

    exit_code = 10


class OutputClosed(FatalError):
    """The reader of our output has gone (`| head`): it has seen enough, so this is a clean end."""

    exit_code = 0
