"""Where the client's errors become ours: every `KafkaException` of this room goes through `mapped`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from confluent_kafka import KafkaError, KafkaException

from enricher.errors import BrokerError, EnricherError, Fenced, SettingsError, TransactionTrouble
from enricher.kafka.client import LastWord

_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.FENCED_INSTANCE_ID}  # noqa: SLF001  the client's names
_RIGHTS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "READ on the input topic, WRITE on the output and dead-letter topics",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "READ on the consumer group",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "WRITE on the transactional id",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "the right to use this cluster",
    KafkaError._AUTHENTICATION: "valid credentials",  # noqa: SLF001  the client's name
    KafkaError.SASL_AUTHENTICATION_FAILED: "valid credentials",
}


def mapped(error: KafkaError, doing: str, last_word: LastWord) -> EnricherError:
    """The error of ours that says what the caller must do about `error`, met while `doing` something."""
    text = f"{doing}: {last_word.explain(error)}"
    if error.code() in _FENCED:
        message = f"{text}. A newer process uses the same transactional id, or this one was away for too long"
        return Fenced(message)
    if right := _RIGHTS.get(error.code()):
        message = f"{text}. The worker needs {right}"
        return BrokerError(message)
    return TransactionTrouble(text)


class Polled(Protocol):
    """A client whose callbacks come when it is polled."""

    def poll(self, timeout: float) -> object:
        """Serve callbacks; blocks for at most `timeout` seconds."""
        ...


@contextmanager
def border(doing: str, last_word: LastWord, client: Polled | None = None) -> Iterator[None]:
    """Map what the client raises in the body.

    With `client`, which must not be a consumer that is reading, it is polled first: why a connection failed is told in a
    callback alone, and only a poll delivers that.
    """
    try:
        yield
    except KafkaException as exception:
        if client is not None:
            with suppress(KafkaException):
                client.poll(0)
        error = exception.args[0]
        if not isinstance(error, KafkaError):
            message = f"{doing}: {error}"
            raise TransactionTrouble(message) from exception
        raise mapped(error, doing, last_word) from exception


@contextmanager
def constructing() -> Iterator[None]:
    """Map what a client says of its configuration to SettingsError."""
    try:
        yield
    except KafkaException as exception:
        message = f"kafka.properties: {exception.args[0].str()}"
        raise SettingsError(message) from exception
