"""Where the client's errors become ours: every `KafkaException` of this room goes through `mapped`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

from confluent_kafka import KafkaError, KafkaException

from enricher.errors import BrokerError, EnricherError, MissingTopic, ProducerFenced, SettingsError, TransactionTrouble
from enricher.kafka.client import KafkaConfig, LastWord

# From librdkafka always the first one, without the broker's code, whether a newer process, a late InitProducerId of our
# own or a transaction that the broker timed out is behind it (seen on Kafka 4.3.1 with librdkafka 2.16).
_FENCED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}  # noqa: SLF001  the client's name
_RIGHTS = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "READ on a topic to read it, WRITE to write to it",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "READ on the consumer group",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "WRITE on the transactional id",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "the right to use this cluster",
    KafkaError._AUTHENTICATION: "valid credentials",  # noqa: SLF001  the client's name
    KafkaError.SASL_AUTHENTICATION_FAILED: "valid credentials",
}
_FILES = {
    "ssl.ca.location": " (is there such a file, with certificates in PEM?)",
    "ssl.certificate.location": " (is there such a file, with a certificate in PEM?)",
    "ssl.key.location": " (is there such a file, with a key in PEM, and is ssl.key.password its password?)",
}


def mapped(error: KafkaError, doing: str, last_word: LastWord) -> EnricherError:
    """The error of ours that says what the caller must do about `error`, met while `doing` something."""
    text = f"{doing}: {last_word.explain(error)}"
    if error.code() in _FENCED:
        return ProducerFenced(text)
    if right := _right(error.code(), text, last_word):
        message = f"{text.rstrip('.')}. Needed: {right}"
        return BrokerError(message)
    return TransactionTrouble(text)


def _right(code: int, text: str, last_word: LastWord) -> str | None:
    """What is missing, with the name of the resource where the client is a worker's; None where the error is no refusal."""
    config = last_word.config
    if config is None:
        return _RIGHTS.get(code)
    return {
        **_RIGHTS,
        KafkaError.TOPIC_AUTHORIZATION_FAILED: _on_topics(config, text, last_word),
        KafkaError.GROUP_AUTHORIZATION_FAILED: f"READ on the group '{config.group_id}'",
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: f"WRITE on the transactional id '{config.transactional_id}'",
    }.get(code)


def _on_topics(config: KafkaConfig, text: str, last_word: LastWord) -> str:
    """The rights on the topics that the error or the client's log names; where neither does, on all three."""
    rights = {config.input_topic: "READ", config.output_topic: "WRITE", config.dead_letter_topic: "WRITE"}
    # A topic's name may be a part of another one's.
    named = [topic for topic in rights if re.search(rf"(?<![\w.-]){re.escape(topic)}(?![\w.-])", text)]
    refused = named or sorted(last_word.refused_topics & rights.keys()) or list(rights)
    return ", ".join(f"{rights[topic]} on the topic '{topic}'" for topic in refused)


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
def connecting(last_word: LastWord) -> Iterator[None]:
    """Around a client's first requests: trouble names the address, and is final where credentials are refused.

    The calls themselves only say that they timed out. Not for later requests, when the complaint may be an old one.
    """
    try:
        yield
    except MissingTopic:
        raise  # somebody has answered
    except TransactionTrouble as trouble:
        where = f" with {last_word.config.bootstrap_servers}" if last_word.config else ""
        message = f"not connected{where}: {trouble}"
        raise (BrokerError if last_word.refused else TransactionTrouble)(message) from trouble


@contextmanager
def constructing() -> Iterator[None]:
    """Map what a client says of its configuration to SettingsError."""
    try:
        yield
    except KafkaException as exception:
        text = exception.args[0].str()
        hint = next((hint for file, hint in _FILES.items() if f"{file} failed" in text), "")
        message = f"kafka.properties: {text}{hint}"
        raise SettingsError(message) from exception
