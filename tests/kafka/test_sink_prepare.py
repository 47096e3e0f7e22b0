"""What the sink does before it connects, such as looking up the schema of records."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import Producer
from kafka.clients import config_for, encoder_of, unguarded
from support.topics import Topics

from enricher.errors import BrokerError, TransactionTrouble
from enricher.worker.kafka.sink import TransactionalSink
from enricher.worker.kafka.source import KafkaSource
from enricher.worker.rules.dead_letter_limits import DeadLetterLimits, Limits
from enricher.worker.stats.counters import Counters

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
