"""`enricher run --processes`: several workers under one parent, on a real broker."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import orjson
import psutil
import pytest
from kafka.harness import (
    QUICK_FAILOVER,
    as_sent,
    assert_all_is_there_once,
    is_all_committed,
    publish,
    published,
    short_articles,
    worker,
)
from support.forked import Forked
from support.patience import wait_until
from support.topics import Topics

pytestmark = pytest.mark.broker

TEXT = {"ENRICHER_LOG__FORMAT": "text"}
SILENT = {"ENRICHER_HEALTH__ENABLED": "false"}
"""The ports of several processes must be free, and other tests have some too."""
SLOW = {"ENRICHER_WORKER__MAX_IN_FLIGHT_ARTICLES": "4"}
"""So that a worker needs a transaction for every few articles: there is time to end it while it works."""
WORK_S = 120.0


def children_of(process: Forked) -> Sequence[psutil.Process]:
    """The workers under a parent."""
    return psutil.Process(process.pid).children()


def have_both_partitions(log: Path) -> bool:
    """Whether each of two workers has had partitions, as text in their log says."""
    said = log.read_text()
    return all(re.search(rf"^\[{index}\] .* partitions assigned", said, re.MULTILINE) for index in (0, 1))


def assert_gone(processes: Sequence[psutil.Process]) -> None:
    """Wait until none of them is left."""
    _, alive = psutil.wait_procs(processes, timeout=WORK_S)
    assert alive == []


def test_two_processes_share_a_backlog(topics: Topics, tmp_path: Path) -> None:
    """Both, as shipped, read and publish under their own names, each article comes out once, and the parent exits with 0."""
    log, counts = tmp_path / "log", tmp_path / "counts.json"
    with worker(
        {**topics.environment, **SILENT, **TEXT}, "--processes", "2", "--summary", str(counts), log=log
    ) as parent:
        wait_until(lambda: have_both_partitions(log), WORK_S, "each has partitions")
        places = publish(topics.bootstrap_servers, topics.input, map(as_sent, short_articles(40)))
        wait_until(lambda: is_all_committed(topics), WORK_S, "all is published")
        parent.terminate()
        assert parent.wait(WORK_S) == 0
    assert_all_is_there_once(topics, places)
    tallies = [orjson.loads((tmp_path / f"counts-{index}.json").read_bytes()) for index in (0, 1)]
    assert sum(counters["published"] for counters in tallies) == 40
    assert min(counters["published"] for counters in tallies) > 0
    said = log.read_text()
    for index in (0, 1):
        assert re.search(rf"^\[{index}\] .* done: \d+ published", said, re.MULTILINE)


def test_children_end_with_a_parent_that_was_killed(topics: Topics) -> None:
    """They are not left behind to fence a successor; nothing is lost or doubled."""
    places = publish(topics.bootstrap_servers, topics.input, map(as_sent, short_articles(600, seed=7)))
    environment = topics.environment | SILENT | QUICK_FAILOVER
    with worker(environment | SLOW, "--processes", "2", stub=True) as parent:
        wait_until(lambda: published(topics) > 20, WORK_S, "the first records")
        children = children_of(parent)
        parent.kill()
        assert_gone(children)
    with worker(environment, "--processes", "2", "--until-caught-up", stub=True) as successor:
        assert successor.wait(WORK_S) == 0
    assert_all_is_there_once(topics, places)
