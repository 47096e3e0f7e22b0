"""The sink without a broker: its transactional id, what comes before it connects, how it closes, what it logs."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from dataclasses import replace
from itertools import combinations, product
from typing import Any, cast

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource
from kafka.clients import config_for, unguarded
from support.records import encoder_of
from support.topics import Topics

from enricher.errors import BrokerError, TransactionTrouble
from enricher.worker.kafka.metadata import message_limits
from enricher.worker.kafka.properties import KafkaConfig
from enricher.worker.kafka.sink import TransactionalSink, log_dead_letters
from enricher.worker.kafka.source import KafkaSource
from enricher.worker.records import DeadLetter, Outcome, Partition, RawRecord, Ticket, Tombstone
from enricher.worker.rules.dead_letter_limits import DeadLetterLimits, Limits
from enricher.worker.stats import Counters

NOWHERE = Topics("127.0.0.1:1", "in", "out", "dead", "group", {})


@pytest.mark.parametrize("error", [TransactionTrouble("the registry is away"), BrokerError("it is not registered")])
def test_nothing_is_connected_before_the_sink_is_prepared(error: Exception) -> None:
    """A producer that fenced the one before it could not write anything; each attempt to open prepares again."""
    attempts: list[str] = []

    def prepare() -> None:
        attempts.append("prepared")
        raise error

    class NoProducer(Producer):
        """A client that must not be made."""

        def __init__(self, *_: object, **__: object) -> None:
            raise AssertionError("connected before it was prepared")

    config = config_for(NOWHERE)
    sink = TransactionalSink(
        config,
        encoder_of(),
        source=KafkaSource(config),
        guard=unguarded,
        counters=Counters(),
        dead_letters=DeadLetterLimits(Limits()),
        prepare=prepare,
        producer_class=NoProducer,
    )
    for _ in range(2):
        with pytest.raises(type(error)):
            sink.open()
    assert ["prepared", "prepared"] == attempts


def test_a_producer_that_does_not_close_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closing may block for as long as the call that failed; the end of the process waits a bounded time for it."""
    monkeypatch.setattr("enricher.worker.kafka.sink.CLOSE_WAIT_S", 0.1)
    config, closing, never = config_for(NOWHERE), threading.Event(), threading.Event()

    class Hanging(TransactionalSink):
        """A sink whose producer does not close."""

        def _close(self) -> None:
            closing.set()
            never.wait()

    source, dead_letters = KafkaSource(config), DeadLetterLimits(Limits())
    Hanging(
        config, encoder_of(), source=source, guard=unguarded, counters=Counters(), dead_letters=dead_letters
    ).close()
    assert closing.is_set()
    never.set()


class SilentAdmin:
    """A client that never answers, not even at its own timeout."""

    def describe_configs(self, resources: list[ConfigResource], **_named: object) -> dict[ConfigResource, Future[Any]]:
        """Promise answers that do not come."""
        return {resource: Future() for resource in resources}


def test_without_an_answer_the_settings_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start does not wait for ever for a limit, and a question in vain raises nothing."""
    monkeypatch.setattr("enricher.worker.kafka.metadata._TIMEOUT_S", 0.01)
    config = config_for(NOWHERE)
    assert {} == message_limits(cast("AdminClient", SilentAdmin()), config)


def ticket(offset: int, outcome: Outcome) -> Ticket:
    """One that is finished."""
    made = Ticket(RawRecord(Partition("articles", 3), offset, None, b"a text"), arrived_s=0.0)
    made.finish(outcome)
    return made


def test_a_line_says_where_and_why(caplog: pytest.LogCaptureFixture) -> None:
    """Place and reason of what the topic has, nothing of the value; other outcomes have no line."""
    letter, large = DeadLetter("decode", "InvalidArticle", "body is missing"), ticket(9, Tombstone())
    substitutes = {large: DeadLetter("publish", "OutputTooLarge", "6041 bytes")}
    log_dead_letters([ticket(7, Tombstone()), ticket(8, letter), large], substitutes)
    assert [
        "dead letter: articles[3] offset 8: body is missing (InvalidArticle, decode)",
        "dead letter: articles[3] offset 9: 6041 bytes (OutputTooLarge, publish)",
    ] == caplog.messages


ODD = ["news", "news-en", "news/en", "news%2Fen", "news%2fen", "en-0", "0", "-", "/", "%", "//", "0/doctor", "-doctor"]


def config(group: str, instance: str) -> KafkaConfig:
    """Of that worker of that group."""
    return replace(config_for(NOWHERE), group_id=group, instance=instance)


def test_two_workers_of_two_groups_never_share_a_transactional_id() -> None:
    """Otherwise they would fence each other for ever: `news` + `en-0` and `news-en` + `0` did."""
    assert config("news", "en-0").transactional_id != config("news-en", "0").transactional_id
    assert config("news", "en/0").transactional_id != config("news/en", "0").transactional_id
    assert "a%2Fb%25/c%2Fd" == config("a/b%", "c/d").transactional_id
    workers = list(product(ODD, ODD))
    assert len(workers) == len({config(*worker).transactional_id for worker in workers})


def test_the_prefix_of_a_group_covers_its_workers_and_nobody_elses() -> None:
    """A prefixed right of one group gives nothing to another, even where one group's name begins with the other's."""
    for mine, other in [*combinations(ODD, 2), *combinations(reversed(ODD), 2)]:
        assert config(mine, other).transactional_id.startswith(config(mine, "any").transactional_prefix)
        assert not config(other, mine).transactional_id.startswith(config(mine, "any").transactional_prefix)
