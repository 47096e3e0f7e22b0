"""A promise of the broker, the outcome of its trial, and which errors are refusals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

if TYPE_CHECKING:
    from enricher.kafka.trials.clients import Clients


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was seen, and whether the promise holds; None if it could not be tried."""

    holds: bool | None
    seen: str


@dataclass(frozen=True, slots=True)
class Promise:
    """One promise. `claim` states it in one sentence, `otherwise` says what happens if it does not hold.

    `needed`: exactly-once depends on it. Without the others the worker only knows less.
    """

    name: str
    claim: str
    otherwise: str
    trial: Callable[[Clients], Outcome]
    needed: bool = True


@dataclass(frozen=True, slots=True)
class Result:
    """A promise that was tried."""

    promise: Promise
    outcome: Outcome
    took_s: float


def refusal(call: Callable[[], object]) -> str | None:
    """The name of the error with which `call` was refused; None if it was accepted.

    Raises errors that are neither, because another attempt may succeed: timeouts above all.
    """
    try:
        call()
    except KafkaException as exception:
        error: KafkaError = exception.args[0]
        if error.retriable():
            raise
        return error.name()
    return None
