"""Messages about refusals name the right, the resource, and the reason that only a callback tells. Without a broker."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaError
from kafka.clients import config_for
from support.topics import Topics

from enricher.errors import BrokerError, TransactionTrouble
from enricher.worker.kafka.errors import ClientErrors, our_error
from enricher.worker.kafka.properties import KafkaConfig

# Names that are parts of one another, as those of real topics are.
TOPICS = Topics("localhost:9092", "news", "news.entities", "news.dead-letters", "enricher", {})
CERTIFICATE_ALERTS = [
    "Receive failed: error:0A000416:SSL routines::ssl/tls alert certificate unknown: SSL alert number 46",
    "Receive failed: error:0A00045C:SSL routines::tlsv13 alert certificate required: SSL alert number 116",
    "SSL handshake failed: error:0A000412:SSL routines::ssl/tls alert bad certificate: SSL alert number 42",
]


@pytest.fixture
def config() -> KafkaConfig:
    """A worker's configuration."""
    return config_for(TOPICS)


def refusal(code: int, doing: str, client_errors: ClientErrors, reason: str = "refused") -> str:
    """The message of a refusal, which is fatal."""
    error = our_error(KafkaError(code, reason), doing, client_errors)
    assert isinstance(error, BrokerError)
    return str(error)


@pytest.mark.parametrize(
    ("code", "doing", "needed"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "reading news", "READ on the topic 'news'"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "a transaction", "READ on the group 'enricher'"),
        (
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "a transaction",
            "WRITE on the transactional id 'enricher/worker-0'",
        ),
    ],
)
def test_right_and_resource_are_named(config: KafkaConfig, code: int, doing: str, needed: str) -> None:
    """The message has the names from the settings."""
    assert refusal(code, doing, ClientErrors(config)).endswith(f"Needed: {needed}")


@pytest.mark.parametrize("topic", ["news.entities", "news.dead-letters"])
def test_the_refused_topic_is_known_from_the_client_s_log(config: KafkaConfig, topic: str) -> None:
    """The error of a transaction names no topic, and topics that only shared the request are not named."""
    client_errors = ClientErrors(config)
    for refused, reason in [
        (topic, "Topic authorization failed"),
        ("news.entities", "Operation not attempted"),
        ("news.dead-letters", "Operation not attempted"),
    ]:
        client_errors.logger.error(
            'TxnCoordinator/1: Failed to add partition "%s" [0] to transaction: Broker: %s', refused, reason
        )
    message = refusal(KafkaError.TOPIC_AUTHORIZATION_FAILED, "a transaction", client_errors)
    assert message.endswith(f"Needed: WRITE on the topic '{topic}'")


def test_where_nothing_names_the_topic_all_are_named(config: KafkaConfig) -> None:
    """Naming all three is better than a guess."""
    message = refusal(KafkaError.TOPIC_AUTHORIZATION_FAILED, "a transaction", ClientErrors(config))
    assert [word for word in ("'news'", "'news.entities'", "'news.dead-letters'") if word not in message] == []


def test_the_client_s_log_goes_on_to_the_common_one(config: KafkaConfig, caplog: pytest.LogCaptureFixture) -> None:
    """Reading the line does not suppress it, and the common logger's level applies."""
    caplog.set_level(logging.ERROR, "librdkafka")
    logger = ClientErrors(config).logger
    logger.error("something is wrong")
    logger.info("something happened")
    assert ["something is wrong"] == caplog.messages


@pytest.mark.parametrize("alert", CERTIFICATE_ALERTS)
def test_a_refused_certificate_is_explained(config: KafkaConfig, alert: str) -> None:
    """TLS gives only an alert; the message says what to check."""
    client_errors = ClientErrors(config)
    client_errors(KafkaError(KafkaError._TRANSPORT, alert))
    error = our_error(KafkaError(KafkaError._TIMED_OUT), "asking", client_errors)
    assert isinstance(error, TransactionTrouble)
    assert "ssl.certificate.location" in str(error)


def test_a_transport_failure_without_a_reason_says_where_to_look(config: KafkaConfig) -> None:
    """A client without TLS gets no reason from a listener with TLS."""
    assert "security.protocol" in str(our_error(KafkaError(KafkaError._TRANSPORT), "asking", ClientErrors(config)))


def test_the_same_complaint_is_logged_once(config: KafkaConfig, caplog: pytest.LogCaptureFixture) -> None:
    """The client repeats the line at every attempt, with another duration in it."""
    caplog.set_level(logging.WARNING, logger="librdkafka")  # the command line raises it for its process
    client_errors = ClientErrors(config)
    for text in ("refused (after 3ms in state CONNECT)", "refused (after 41ms in state CONNECT)", "no route"):
        client_errors(KafkaError(KafkaError._TRANSPORT, text))
    assert 2 == len(caplog.messages)
