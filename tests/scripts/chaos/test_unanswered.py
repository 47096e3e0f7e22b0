"""Requests that are answered late or never: commits, the search for a coordinator, idle clients."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sized
from typing import cast

import pytest
from confluent_kafka import Producer
from kafka.clients import config_for, unguarded
from kafka.harness import as_sent, assert_exactly_once, publish, short_articles, worker
from support.patience import PATIENCE_S
from support.reading import committed_and_ends, read_all
from support.records import encoder_of
from support.topics import Topics

from enricher.operate.verify.verification import verify
from enricher.worker.kafka.sink import TransactionalSink
from enricher.worker.kafka.source import KafkaSource
from enricher.worker.rules.dead_letter_limits import DeadLetterLimits, Limits
from enricher.worker.stats import Counters
from tools.chaos.proxy import Proxy
from tools.chaos.rules import Api, Cut, Delay, DropReply, Match
from tools.waiting import wait_until

pytestmark = pytest.mark.broker

ARTICLES, AT_ONCE = 120, 40
SETTINGS = {
    "ENRICHER_KAFKA__SESSION_TIMEOUT_S": "6",
    "ENRICHER_KAFKA__TRANSACTION_TIMEOUT_S": "5",
    "ENRICHER_WORKER__PUBLISH_INTERVAL_MS": "50",
    "ENRICHER_WORKER__MAX_IN_FLIGHT_ARTICLES": str(AT_ONCE),  # so that one transaction cannot be all of it
}


def published(topics: Topics) -> tuple[int, int]:
    """How many records a reader sees, and how many inputs the group has committed."""
    records = read_all(topics.bootstrap_servers, topics.output)
    places = committed_and_ends(topics.bootstrap_servers, topics.group, topics.input).values()
    return len(records), sum(max(0, committed) for committed, _ in places)


def test_worker_killed_before_it_reads_that_it_committed_is_continued(proxy: Proxy, topics: Topics) -> None:
    """The transaction is visible with its offsets although the worker never knew; the next process continues after it."""
    places = publish(topics.bootstrap_servers, topics.input, map(as_sent, short_articles(ARTICLES)))
    environment = topics.environment | SETTINGS | {"ENRICHER_KAFKA__BOOTSTRAP_SERVERS": proxy.addresses}
    with worker(environment, stub=True) as process:
        match = Match({Api.END_TXN}, "enricher-worker-0")
        proxy.apply(unread := DropReply(match, nth=3))
        assert unread.caught.wait(PATIENCE_S)
        process.send_signal(signal.SIGKILL)
        assert process.wait(PATIENCE_S) == -signal.SIGKILL
    # The reply precedes the transaction's markers. Nobody else writes, so what appears is the unconfirmed transaction.
    assert wait_until(lambda: published(topics)[0] > 0, PATIENCE_S)
    records, committed = published(topics)
    assert 0 < records == committed <= AT_ONCE
    with worker(environment, "--until-caught-up", stub=True) as process:
        assert process.wait(2 * PATIENCE_S) == 0
    assert [] == verify(config_for(topics)).failed
    outputs = [
        *read_all(topics.bootstrap_servers, topics.output),
        *read_all(topics.bootstrap_servers, topics.dead_letters),
    ]
    assert_exactly_once(outputs, places)
    assert len(outputs) == ARTICLES


EVENTS = 3


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


START = """
import time
from enricher.worker.wiring.kafka_clients import kafka_config
from enricher.worker.kafka.precheck import check_start
from enricher.worker.wiring.kafka_clients import kafka_config
from enricher.worker.settings import load_settings
check_start(kafka_config(load_settings()))
print("checked", flush=True)
time.sleep(2.5)
"""


def test_the_check_before_a_start_outlives_a_late_coordinator(proxy: Proxy, topics: Topics) -> None:
    """A time limit within the client passes first, and aborts the process when the answer comes (librdkafka 4605)."""
    proxy.apply(delay := Delay(Match({Api.FIND_COORDINATOR}), 1.2))
    done = subprocess.run(
        [sys.executable, "-c", START],
        env=topics.environment | {"ENRICHER_KAFKA__BOOTSTRAP_SERVERS": proxy.addresses},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert delay.caught.is_set()
    assert (0, "checked\n") == (done.returncode, done.stdout), done.stderr
