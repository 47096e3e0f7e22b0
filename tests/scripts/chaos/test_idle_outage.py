"""An outage while there is nothing to publish: what the sink's clients have to say is taken from them as it comes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sized
from typing import cast

import pytest
from confluent_kafka import Producer
from kafka.clients import config_for, encoder, unguarded
from support.topics import Topics

from enricher.kafka.sink import TransactionalSink
from enricher.kafka.source import KafkaSource
from enricher.stats.counters import Counters
from tools.chaos.proxy import Proxy
from tools.chaos.rules import Cut, Match

pytestmark = pytest.mark.broker

EVENTS = 5
TIMEOUT_S = 60.0


class _Noted(Producer):
    """Remembers the producers that were made."""

    made: list[_Noted]

    def __init__(self, *arguments: object, **named: object) -> None:
        super().__init__(*arguments, **named)
        self.made.append(self)


def until(condition: Callable[[], bool]) -> None:
    """Wait until something holds."""
    deadline_s = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(0.02)


def test_events_of_an_idle_outage_are_delivered_as_they_come(proxy: Proxy, direct: Topics) -> None:
    """Unserved they pile up for as long as the broker is away; one call takes them all, and each turn has one."""
    _Noted.made = []
    config = config_for(direct, bootstrap_servers=proxy.addresses)
    source = KafkaSource(config)
    sink = TransactionalSink(
        config,
        encoder(),
        source=source,
        guard=unguarded,
        counters=Counters(),
        producer_class=_Noted,
    )
    sink.open()
    (producer,) = _Noted.made
    proxy.apply(Cut(Match(None, "enricher-")))
    until(lambda: len(producer) >= EVENTS)
    sink.serve()
    assert len(producer) < EVENTS
    most, ends_s = 0, time.monotonic() + 3.0
    while time.monotonic() < ends_s:  # an event came at least every second above
        sink.serve()
        most = max(most, len(producer), len(cast("Sized", source.watch.client)))
    assert most < EVENTS
    proxy.lift_all()
    sink.close()
    source.close()
