"""What is logged of a client's errors, which come twice a second, and what messages say about refusals. Without a broker."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaError
from kafka.clients import config_for
from support.topics import Topics

from enricher.errors import BrokerError, TransactionTrouble
from enricher.worker.kafka.errors import ClientErrors, our_error
from enricher.worker.kafka.properties import KafkaConfig

REFUSED = "[w#producer-{}] {}: Connect failed: Connection refused (after {}ms in state CONNECT{})"


def test_two_brokers_that_are_away_in_turns_are_two_lines(caplog: pytest.LogCaptureFixture) -> None:
    """The client tries both in turn; its own log and its callback both report it."""
    caplog.set_level(logging.WARNING, logger="librdkafka")
    client_errors = ClientErrors()
    for number in range(20):
        text = REFUSED.format(number, f"b-{number % 2}:9092", number, "")
        client_errors(KafkaError(KafkaError._TRANSPORT, text))
        client_errors.logger.error("FAIL %s", text)
    assert 4 == len(caplog.messages)
    assert "Connection refused" in client_errors.explain(KafkaError(KafkaError._TRANSPORT))


def test_a_replaced_producer_s_last_words_are_no_alarm(caplog: pytest.LogCaptureFixture) -> None:
    """The client logs them as critical after each outage, when the worker closes the producer that it has replaced."""
    caplog.set_level(logging.INFO, logger="librdkafka")
    fatal = "FATAL [w#producer-2]: Fatal error: Local: This instance has been fenced by a newer instance: %s"
    ClientErrors().logger.critical(fatal, "Failed to end transaction")
    ClientErrors().logger.critical("FATAL [w#producer-2]: Fatal error: something else")
    assert ["INFO", "CRITICAL"] == [each.levelname for each in caplog.records]
    assert caplog.messages[0].startswith("a producer that was replaced by a newer one ends; no action is needed: FATAL")


@pytest.mark.parametrize(
    ("code", "text", "refused"),
    [
        (KafkaError._AUTHENTICATION, "invalid credentials", True),
        (KafkaError._SSL, "SSL routines::tlsv1 alert unknown ca: SSL alert number 48", True),
        (KafkaError._SSL, "broker certificate could not be verified, verify that ssl.ca.location ...", True),
        (KafkaError._TRANSPORT, "Connection refused", False),
        (KafkaError._SSL, "SSL transport error: Connection reset by peer", False),
    ],
)
def test_a_refusal_is_told_from_a_broker_that_is_away(code: int, text: str, *, refused: bool) -> None:
    """A refusal ends a start at once; an unreachable broker is waited for."""
    client_errors = ClientErrors()
    client_errors(KafkaError(KafkaError._AUTHENTICATION, "an older complaint"))
    client_errors(KafkaError(code, text))
    assert client_errors.refused is refused


@pytest.mark.parametrize(
    "text",
    [
        "certificate verify failed: broker certificate could not be verified, verify that ssl.ca.location is correctly ...",
        "error:0A000086:SSL routines::certificate verify failed (after 2ms in state SSL_HANDSHAKE)",
    ],
)
def test_a_certificate_of_another_ca_is_told_once_in_any_words(text: str) -> None:
    """The client names the setting only if the handshake did not fail with its first packet."""
    client_errors = ClientErrors()
    client_errors(KafkaError(KafkaError._TRANSPORT, text))
    assert client_errors.refused
    explained = client_errors.explain(KafkaError(KafkaError._TIMED_OUT))
    assert 1 == explained.count("broker certificate could not be verified")
    assert 1 == explained.count("ssl.ca.location")


def test_a_refused_topic_is_one_line_and_not_one_for_each_partition(caplog: pytest.LogCaptureFixture) -> None:
    """The client's own words for each partition are one line; another topic, or another reason, is another line."""
    line = (
        'ADDPARTS [w#producer-8] [thrd:main]: C/1: Failed to add partition "{}" [{}] to transaction: Broker: {}'.format
    )
    client_errors = ClientErrors()
    for number in range(64):
        client_errors.logger.error(line("entities", number, "Topic authorization failed"))
    other_topic, other_reason = line("letters", 0, "Topic authorization failed"), line("entities", 0, "Not attempted")
    client_errors.logger.error(other_topic)
    client_errors.logger.error(other_reason)
    assert [line("entities", 0, "Topic authorization failed"), other_topic, other_reason] == caplog.messages


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


@pytest.mark.parametrize("alert", CERTIFICATE_ALERTS)
def test_a_refused_certificate_is_explained(config: KafkaConfig, alert: str) -> None:
    """TLS gives only an alert; the message says what to check."""
    client_errors = ClientErrors(config)
    client_errors(KafkaError(KafkaError._TRANSPORT, alert))
    error = our_error(KafkaError(KafkaError._TIMED_OUT), "asking", client_errors)
    assert isinstance(error, TransactionTrouble)
    assert "ssl.certificate.location" in str(error)
