"""Killed at any point of the loop or of the transaction, the worker loses nothing and doubles nothing."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from kafka.crashing_worker import POINTS, CrashPoint
from kafka.harness import (
    QUICK_FAILOVER,
    as_sent,
    assert_all_is_there_once,
    is_all_committed,
    publish,
    short_articles,
    worker,
)
from support.patience import PATIENCE_S, wait_until
from support.reading import read_all
from support.topics import Topics, make_topics

from tools.kafka import Cluster

QUICK = {
    **QUICK_FAILOVER,
    "ENRICHER_WORKER__PUBLISH_INTERVAL_MS": "50",
    # So that there are polls and transactions enough to die at the third.
    "ENRICHER_WORKER__MAX_IN_FLIGHT_ARTICLES": "20",
}
ARTICLES = 240
REACHED_OTHERWISE = {"recovered", "revoking"}
"""Points that an undisturbed worker never reaches."""
ALONE = [(f"{point}:{nth}",) for point in POINTS if point not in REACHED_OTHERWISE for nth in (1, 3)]
IN_A_ROW = [
    ("begun:1", "polled:3", "tokenized:3"),
    ("offsets-sent:1", "submitted:3", "completed:3"),
    ("produced:1", "flushed:3", "committed:3"),
]
"""The first of each row dies in the first transaction of its group, and its successors die, too."""


@pytest.mark.broker
@pytest.mark.parametrize(
    "rows",
    [IN_A_ROW, pytest.param(ALONE, marks=[pytest.mark.long, pytest.mark.timeout(600)])],
    ids=["in a row", "alone"],
)
def test_a_worker_killed_there_is_continued_by_its_successor(broker: Cluster, rows: Sequence[Sequence[str]]) -> None:
    """Whatever was under way, every article has one output, and offsets are committed to the end."""
    with ThreadPoolExecutor(4) as pool:  # most of the time they wait for the session of a dead worker to end
        assert len(rows) == len(list(pool.map(partial(killed_and_continued, broker), rows)))


def killed_and_continued(broker: Cluster, points: Sequence[str]) -> None:
    """Workers of one name die at these points, one after another: each ends what its predecessor left open."""
    topics = make_topics(broker.bootstrap_servers)
    places = publish(topics.bootstrap_servers, topics.input, map(as_sent, short_articles(ARTICLES)))
    for point in points:
        with worker(topics.environment | QUICK, "--until-caught-up", crash_at=point) as process:
            assert -signal.SIGKILL == process.wait(PATIENCE_S), point
        assert len(read_all(topics.bootstrap_servers, topics.output)) < ARTICLES, "it died too late to prove anything"
    with worker(topics.environment | QUICK, "--until-caught-up", stub=True) as process:
        assert 0 == process.wait(PATIENCE_S), points
    assert_all_is_there_once(topics, places)


@pytest.mark.broker
def test_a_worker_killed_while_its_partitions_are_taken_is_continued(topics: Topics) -> None:
    """A second member joins, and the first dies while it gives up its partitions."""
    places = publish(topics.bootstrap_servers, topics.input, map(as_sent, short_articles(600)))
    environment = topics.environment | QUICK | {"ENRICHER_WORKER__MAX_IN_FLIGHT_ARTICLES": "4"}
    with worker(environment, crash_at="revoking") as first:
        wait_until(lambda: bool(read_all(topics.bootstrap_servers, topics.output)), PATIENCE_S, "the first records")
        with worker(environment | {"ENRICHER_KAFKA__INSTANCE": "worker-1"}, stub=True) as second:
            assert first.wait(PATIENCE_S) == -signal.SIGKILL
            wait_until(lambda: is_all_committed(topics), PATIENCE_S, "everything committed")
            second.terminate()
            assert second.wait(PATIENCE_S) == 0
    assert_all_is_there_once(topics, places)


def test_a_point_is_named_with_or_without_a_number() -> None:
    """Any other name is refused with the list."""
    assert CrashPoint("flushed", 3) == CrashPoint.parse("flushed:3")
    assert CrashPoint("begun") == CrashPoint.parse("begun")
    for text in ("nowhere", "begun:", "begun:0", "begun:x", ""):
        with pytest.raises(ValueError, match="offsets-sent"):
            CrashPoint.parse(text)
