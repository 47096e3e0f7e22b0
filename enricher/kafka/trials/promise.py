"""The words of the trials: a promise of the broker, what came of trying it, and the error that is a refusal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from confluent_kafka import KafkaError, KafkaException

if TYPE_CHECKING:
    from enricher.kafka.trials.clients import Clients


@dataclass(frozen=True, slots=True)
class Outcome:
    """What was seen, and whether the promise holds; None where it could not be tried."""

    holds: bool | None
    seen: str


@dataclass(frozen=True, slots=True)
class Promise:
    """What a broker must keep. `claim` says it in one sentence, `otherwise` what follows where it does not hold.

    `needed`: exactly-once stands on it; without the others the worker only knows less.
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
    """The name of the error with which `call` was refused; None where it was accepted.

    An error that another attempt may cure (a timeout above all) says neither, and is raised.
    """
    try:
        call()
    except KafkaException as exception:
        error: KafkaError = exception.args[0]
        if error.retriable():
            raise
        return error.name()
    return None
