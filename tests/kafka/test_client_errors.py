"""A client that cannot connect reports errors twice a second: which of them are logged."""

from __future__ import annotations

import logging

import pytest
from confluent_kafka import KafkaError

from enricher.worker.kafka.errors import ClientErrors

REFUSED = "[w#producer-{}] {}: Connect failed: Connection refused (after {}ms in state CONNECT{})"


def test_times_and_numbers_of_clients_make_no_new_complaint(caplog: pytest.LogCaptureFixture) -> None:
    """Durations and client numbers differ at every attempt; another broker is another error."""
    client_errors = ClientErrors()
    client_errors.logger.error(REFUSED.format(1, "b-1:9092", 0, ""))
    client_errors.logger.error(REFUSED.format(2, "b-1:9092", 17, ", 19 identical error(s) suppressed"))
    client_errors.logger.error(REFUSED.format(2, "b-2:9092", 0, ""))
    assert [REFUSED.format(1, "b-1:9092", 0, ""), REFUSED.format(2, "b-2:9092", 0, "")] == caplog.messages


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


def test_what_the_client_says_in_detail_is_never_left_out(caplog: pytest.LogCaptureFixture) -> None:
    """A user who asked for debug lines gets all of them."""
    caplog.set_level(logging.DEBUG, logger="librdkafka")
    for _ in range(3):
        ClientErrors().logger.debug("received a reply")
    client_errors = ClientErrors()
    for _ in range(3):
        client_errors.logger.debug("received a reply")
    assert 6 == len(caplog.messages)


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
