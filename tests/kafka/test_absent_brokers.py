"""A broker that does not answer is waited for, also at the start; what a broker answers is final after a while."""

from __future__ import annotations

import re
import signal
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic
from health.looking import until
from health.test_health_run import Running
from kafka.clients import config_for, ends_for, unguarded
from kafka.harness import as_sent, publish, short_articles, worker
from kafka.test_processes import TEXT
from support.made_again import topic_id
from support.operating import admin_of
from support.patience import PATIENCE_S, wait_until
from support.topics import Topics

from enricher.errors import RecoveryExhausted, TransactionTrouble
from enricher.worker.loop.recovery import Recovery, RecoveryLimits
from enricher.worker.runtime.deadlines import StopEvent
from tools.chaos.proxy import Proxy
from tools.chaos.rules import Cut, Match

pytestmark = pytest.mark.broker

NOBODY = {"ENRICHER_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1", "ENRICHER_KAFKA__REQUEST_TIMEOUT_S": "1"}
WORK_S = 180.0
LONG_S = 10
"""After so many seconds a worker repeats what it waits for."""
SAYS = re.compile(r"not connected after (\d+) of (\d+) s")


@pytest.fixture
def beyond(proxy: Proxy, topics: Topics) -> Topics:
    """The topics of a worker whose way to the broker can be cut, by a rule of the proxy."""
    addresses = proxy.addresses
    environment = topics.environment | {"ENRICHER_KAFKA__BOOTSTRAP_SERVERS": addresses} | TEXT
    return replace(topics, environment=environment)


def waited_s(log: Path) -> int:
    """How long the worker has been waiting for its brokers, from its log; 0 before the first line."""
    return max((int(waited) for waited, _ in SAYS.findall(log.read_text())), default=0)


def test_a_broker_that_comes_up_after_the_worker_is_waited_for(beyond: Topics, proxy: Proxy, tmp_path: Path) -> None:
    """The worker is alive and not ready as long as it takes, logs what it waits for, and then works."""
    log = tmp_path / "log"
    proxy.apply(away := Cut(Match()))
    with worker(beyond.environment, log=log, stub=True) as process:
        seen = Running(process, tmp_path)
        until(lambda: waited_s(log) >= LONG_S, "it has waited for long", WORK_S)
        assert (200, 503, 503) == seen.probes()
        assert "connecting with the brokers\n" == seen.get("/startupz").text
        assert 1 == seen.metric("enricher_state", enricher_state="starting")
        said = [line for line in log.read_text().splitlines() if proxy.addresses in line]
        assert len(said) < 12, "a few lines, and not two a second"
        proxy.lift(away)
        publish(beyond.bootstrap_servers, beyond.input, map(as_sent, short_articles(20)))
        until(lambda: seen.probes() == (200, 200, 200), "it is ready", WORK_S)
        until(lambda: seen.metric("enricher_articles_total") == 20, "all is published", WORK_S)


def test_a_broker_that_stays_away_ends_the_worker_with_6_after_the_bound(tmp_path: Path) -> None:
    """The exit code of a temporary problem, with the address that did not answer."""
    log = tmp_path / "log"
    with worker({**NOBODY, **TEXT, "ENRICHER_WORKER__RECOVERY_TIMEOUT_S": "3"}, log=log, stub=True) as process:
        assert 6 == process.wait(PATIENCE_S)
    assert re.search(r"^enricher: not connected within 3 s.*127\.0\.0\.1:1.*reachable", log.read_text(), re.MULTILINE)


def test_a_worker_that_waits_for_its_brokers_ends_in_order_when_asked(tmp_path: Path) -> None:
    """SIGTERM takes effect within one attempt, and the exit code is 0."""
    log = tmp_path / "log"
    with worker({**NOBODY, **TEXT}, log=log, stub=True) as process:
        wait_until(lambda: log.exists() and bool(SAYS.search(log.read_text())), PATIENCE_S, "it waits")
        process.send_signal(signal.SIGTERM)
        assert 0 == process.wait(PATIENCE_S)
    assert "done: 0 published" in log.read_text()


def test_a_topic_that_stays_missing_ends_the_worker_with_4_and_its_name(topics: Topics, tmp_path: Path) -> None:
    """A wrong name is waited for only as long as a broker takes to know its topics."""
    wrong = {"ENRICHER_KAFKA__OUTPUT_TOPIC": "nowhere", "ENRICHER_KAFKA__REQUEST_TIMEOUT_S": "2"}
    log = tmp_path / "log"
    with worker({**topics.environment, **TEXT, **wrong}, log=log, stub=True) as process:
        assert 4 == process.wait(PATIENCE_S)
    assert "enricher: there is no topic 'nowhere': create it" in log.read_text()


def create(topics: Topics, name: str) -> None:
    """A topic like the others."""
    admin = admin_of(topics.bootstrap_servers)
    admin.create_topics([NewTopic(name, num_partitions=4, replication_factor=1)])[name].result(PATIENCE_S)


def delete(topics: Topics) -> None:
    """The output topic; returns when the broker says that there is none."""
    admin = admin_of(topics.bootstrap_servers)
    admin.delete_topics([topics.output])[topics.output].result(PATIENCE_S)
    gone = partial(topic_id, topics.bootstrap_servers, topics.output)
    wait_until(lambda: gone() is None, PATIENCE_S, "the topic is gone")


class _After(StopEvent):
    """Creates the output topic before a given attempt."""

    def __init__(self, attempt: int, topics: Topics) -> None:
        super().__init__()
        self._left, self._topics = attempt, topics

    def wait(self, timeout_s: float | None = None) -> bool:
        """Called before each attempt."""
        self._left -= 1
        if self._left == 0:
            create(self._topics, self._topics.output)
        return super().wait(timeout_s)


def test_a_topic_that_is_missing_in_a_recovery_is_trouble_like_any_other(topics: Topics) -> None:
    """Recovery continues until the broker knows the topic again, within its bound; beyond that the exit code is 6."""
    source, sink = ends_for(config_for(topics))
    delete(topics)
    limits = RecoveryLimits(timeout_s=60, attempt_timeout_s=60, max_in_a_row=5, missing_topic_s=0)
    recovery = Recovery(source, sink, limits, clock=time.monotonic, guard=unguarded)
    assert recovery.run(TransactionTrouble("first"), _After(3, topics))
    delete(topics)
    with pytest.raises(RecoveryExhausted, match=f"'{topics.output}'"):
        Recovery(source, sink, replace(limits, timeout_s=0), clock=time.monotonic, guard=unguarded).run(
            TransactionTrouble("second"), StopEvent()
        )
