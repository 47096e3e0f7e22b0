"""A start waits for brokers that do not answer, and ends before the model is loaded if it is sure to. Rights: `security`."""

from __future__ import annotations

import re
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from health.looking import until
from health.test_health_run import Running
from kafka.clients import config_for
from kafka.harness import as_sent, publish, short_articles, worker
from kafka.test_processes import TEXT
from support.patience import PATIENCE_S, wait_until
from support.topics import Topics

from enricher.errors import BrokerError, SettingsError
from enricher.worker.kafka.precheck import check_start
from tools.chaos.proxy import Proxy
from tools.chaos.rules import Cut, Match

pytestmark = pytest.mark.broker

NOBODY = {"ENRICHER_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1", "ENRICHER_KAFKA__REQUEST_TIMEOUT_S": "1"}
WORK_S = 180.0
SAYS = re.compile(r"not connected after \d+ of \d+ s")


@pytest.fixture
def beyond(proxy: Proxy, topics: Topics) -> Topics:
    """The topics of a worker whose way to the broker can be cut, by a rule of the proxy."""
    addresses = proxy.addresses
    environment = topics.environment | {"ENRICHER_KAFKA__BOOTSTRAP_SERVERS": addresses} | TEXT
    return replace(topics, environment=environment)


def test_a_broker_that_comes_up_after_the_worker_is_waited_for(beyond: Topics, proxy: Proxy, tmp_path: Path) -> None:
    """The worker is alive and not ready as long as it takes, logs what it waits for, and then works."""
    log = tmp_path / "log"
    proxy.apply(away := Cut(Match()))
    with worker(beyond.environment, log=log, stub=True) as process:
        seen = Running(process, tmp_path)
        until(lambda: bool(SAYS.search(log.read_text())), "it waits", WORK_S)
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


def test_a_missing_topic_ends_it_within_the_request_timeout(topics: Topics) -> None:
    """Not sooner: a broker that has just started knows no topic yet."""
    config = config_for(topics, output_topic="nowhere", request_timeout_s=0.5)
    with pytest.raises(BrokerError, match="no topic 'nowhere'"):
        check_start(config)
    late = f"{topics.output}.late"

    def create(_pause_s: float) -> None:
        admin = AdminClient({"bootstrap.servers": topics.bootstrap_servers})
        if late not in admin.list_topics(timeout=PATIENCE_S).topics:
            admin.create_topics([NewTopic(late, num_partitions=4, replication_factor=1)])[late].result(PATIENCE_S)
        time.sleep(0.1)

    check_start(config_for(topics, output_topic=late, request_timeout_s=30.0), pause=create)


def test_too_few_partitions_end_it(topics: Topics) -> None:
    """As when the source is opened, with the same message; but not the indexer, whose letters are placed by key."""
    few = f"{topics.output}.few"
    admin = AdminClient({"bootstrap.servers": topics.bootstrap_servers})
    admin.create_topics([NewTopic(few, num_partitions=1, replication_factor=1)])[few].result(PATIENCE_S)
    config = config_for(topics, output_topic=few)
    with pytest.raises(SettingsError, match="fewer"):
        check_start(config)
    check_start(config, by_key=True)


@pytest.mark.slow
def test_brokers_that_are_away_do_not_end_it(caplog: pytest.LogCaptureFixture) -> None:
    """The start waits for them later; what the client itself refuses is reported at once."""
    caplog.set_level("INFO", "enricher.worker.kafka.precheck")
    topics = Topics("127.0.0.1:1", "in", "out", "dead", "group", {})
    check_start(config_for(topics))
    assert "after the model is loaded" in caplog.text
    with pytest.raises(SettingsError, match="made_up_property"):
        check_start(config_for(topics, properties={"made_up_property": "1"}))
    with pytest.raises(SettingsError, match="made_up_property"):
        check_start(config_for(topics, properties={"consumer.made_up_property": "1"}))
