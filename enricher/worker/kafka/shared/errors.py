"""Maps the client's errors to ours. No `KafkaException` leaves this package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from enricher.errors import BrokerError, EnricherError, MissingTopic, NoAnswer, ProducerFenced, TransactionTrouble
from enricher.worker.kafka.shared.client_errors import ClientErrors, Complaint
from enricher.worker.kafka.shared.rights import needed_after

Polled = Consumer | Producer | AdminClient
"""A client that runs its callbacks when it is polled."""

UNREADABLE = KafkaError._BAD_COMPRESSION  # noqa: SLF001  the client's name
"""The client cannot decompress a batch. Its checksum was valid, since `check.crcs` cannot be switched off, so another fetch
has the same result."""
# librdkafka always gives the first one, without the broker's code. The cause may be a newer process, a late InitProducerId
# of this process, or a transaction that the broker timed out (seen on Kafka 4.3.1 with librdkafka 2.16).
_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}  # noqa: SLF001  the client's name


def our_error(error: KafkaError, doing: str, client_errors: ClientErrors) -> EnricherError:
    """Our error for `error`, which occurred while `doing` something: its class says what the caller must do."""
    text = f"{doing}: {client_errors.explain(error)}"
    if error.code() in _FENCED:
        return ProducerFenced(text)
    if needed := needed_after(error.code(), text, client_errors.config, client_errors.refused_topics):
        message = f"{text.rstrip('.')}. Needed: {needed}"
        return BrokerError(message)
    return TransactionTrouble(text)


def transient_error(error: KafkaError, doing: str, client_errors: ClientErrors) -> EnricherError:
    """Maps an error that waiting solves; raises BrokerError for any other."""
    trouble = our_error(error, doing, client_errors)
    if isinstance(trouble, BrokerError):
        raise trouble
    if error.fatal():
        raise BrokerError(str(trouble))
    return trouble


@contextmanager
def mapping_errors(doing: str, client_errors: ClientErrors, client: Polled | None = None) -> Iterator[None]:
    """Map what the client raises in the body.

    Polls `client` first, because only a callback tells why a connection failed. It must not be a consumer that reads.
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
        raise our_error(error, doing, client_errors) from exception


@contextmanager
def broker_errors(client: Polled, doing: str, complaint: Complaint) -> Iterator[None]:
    """Maps, for commands, what the client raises in the body to BrokerError (or another FatalError)."""
    with without_recovery(), mapping_errors(doing, complaint, client):
        yield


@contextmanager
def without_recovery() -> Iterator[None]:
    """Turns what a worker would recover from into NoAnswer, for commands, and a topic that is missing into BrokerError."""
    try:
        yield
    except MissingTopic as error:
        raise BrokerError(str(error)) from error
    except TransactionTrouble as error:
        raise NoAnswer(str(error)) from error


@contextmanager
def connecting(client_errors: ClientErrors) -> Iterator[None]:
    """Adds the address to TransactionTrouble of a client's first requests; refused credentials raise BrokerError.

    The calls themselves only say that they timed out. Not for later requests, when the last error may be an old one.
    """
    try:
        yield
    except MissingTopic:
        raise  # a broker has answered
    except TransactionTrouble as trouble:
        where = f" with {client_errors.config.bootstrap_servers}" if client_errors.config else ""
        message = f"not connected{where}: {trouble}"
        raise (BrokerError if client_errors.refused else TransactionTrouble)(message) from trouble
