"""A crash between a commit and its confirmation: the transaction has ended, and the reply is never read."""

from __future__ import annotations

import signal

import pytest
from kafka.clients import config_for
from kafka.harness import as_sent, assert_exactly_once, publish, short_articles, worker
from support.patience import PATIENCE_S, wait_until
from support.reading import committed_and_ends, read_all
from support.topics import Topics

from enricher.operate.verify.verification import verify
from tools.chaos.proxy import Proxy
from tools.chaos.rules import Api, DropReply, Match

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
    wait_until(lambda: published(topics)[0] > 0, PATIENCE_S, "the unconfirmed transaction")
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
