"""A broker outage while there is nothing to publish: the sink's client events are served as they come."""

from __future__ import annotations

from collections.abc import Sized
from typing import cast

import pytest
from confluent_kafka import Producer
from kafka.clients import config_for, encoder_of, unguarded
from support.patience import PATIENCE_S
from support.topics import Topics

from enricher.worker.kafka.sink import TransactionalSink
from enricher.worker.kafka.source import KafkaSource
from enricher.worker.rules.dead_letter_limits import DeadLetterLimits, Limits
from enricher.worker.stats import Counters
from tools.chaos.proxy import Proxy
from tools.chaos.rules import Cut, Match
from tools.waiting import wait_until

pytestmark = pytest.mark.broker

EVENTS = 5


class _Noted(Producer):
    """Records the producers that are created."""

    made: list[_Noted]

    def __init__(self, *arguments: object, **named: object) -> None:
        super().__init__(*arguments, **named)
        self.made.append(self)


def test_events_of_an_idle_outage_are_delivered_as_they_come(proxy: Proxy, topics: Topics) -> None:
    """Unserved events would pile up during the outage; one call of `serve` takes them all."""
    _Noted.made = []
    config = config_for(topics, bootstrap_servers=proxy.addresses)
    source = KafkaSource(config)
    sink = TransactionalSink(
        config,
        encoder_of(),
        source=source,
        guard=unguarded,
        counters=Counters(),
        dead_letters=DeadLetterLimits(Limits()),
        producer_class=_Noted,
    )
    sink.open()
    (producer,) = _Noted.made
    proxy.apply(Cut(Match(None, "enricher-")))
    assert wait_until(lambda: len(producer) >= EVENTS, PATIENCE_S, 0.02)
    sink.serve()
    assert len(producer) < EVENTS

    def piled_up() -> bool:
        sink.serve()
        return max(len(producer), len(cast("Sized", source.watch.client))) >= EVENTS

    assert not wait_until(piled_up, 3.0, 0.02)  # an event came at least every second above
    proxy.lift_all()
    sink.close()
    source.close()
