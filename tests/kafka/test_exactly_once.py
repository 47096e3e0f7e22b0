"""Exactly-once on a real broker, with workers in their own processes, which come and go, or read two topics."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import orjson
import pytest
from confluent_kafka import Message
from kafka.harness import (
    QUICK_FAILOVER,
    Sent,
    as_sent,
    assert_all_is_there_once,
    assert_exactly_once,
    headers_of,
    is_all_committed,
    publish,
    published,
    short_articles,
    worker,
)
from support.patience import wait_until
from support.reading import committed_and_ends, read_all
from support.topics import Topics, make_topics

pytestmark = pytest.mark.broker

GUEST = {"ENRICHER_KAFKA__INSTANCE": "worker-1"}
WORK_S = 120.0


def test_every_article_is_there_once_while_a_worker_comes_and_goes(topics: Topics, tmp_path: Path) -> None:
    """Two workers, one of them stopped or killed and started again and again while both have work."""
    places: dict[tuple[int, int], Sent] = {}
    environment = topics.environment | QUICK_FAILOVER | {"ENRICHER_WORKER__MAX_IN_FLIGHT_ARTICLES": "4"}
    with worker(environment, stub=True) as steady:
        for seed, number in enumerate((signal.SIGTERM, signal.SIGKILL, signal.SIGKILL, signal.SIGTERM)):
            log = tmp_path / f"{seed}.log"
            with worker(environment | GUEST, log=log, stub=True) as guest:
                wait_until(partial(has_partitions, log), WORK_S, "the other one has partitions")
                before = published(topics)
                places |= publish(topics.bootstrap_servers, topics.input, map(as_sent, short_articles(200, seed)))
                wait_until(lambda: published(topics) > before, WORK_S, "they work")  # noqa: B023  called in this turn
                guest.send_signal(number)
                assert guest.wait(WORK_S) == (0 if number == signal.SIGTERM else -number)
        wait_until(lambda: is_all_committed(topics), WORK_S, "all is published")
        steady.terminate()
        assert steady.wait(WORK_S) == 0
    assert_all_is_there_once(topics, places)


def has_partitions(log: Path) -> bool:
    """Whether a worker that logs there was ever assigned partitions."""
    return "partitions assigned" in log.read_text()


BACKLOG, HEADLINES = 3_000, 10


def both_of(topics: Topics) -> tuple[Topics, dict[str, str]]:
    """Another input topic with two partitions for the same worker, and the environment of a worker that reads both."""
    now = replace(topics, input=make_topics(topics.bootstrap_servers, 2).input)
    environment = {name: value for name, value in topics.environment.items() if not name.endswith("INPUT_TOPIC")}
    return now, environment | {"ENRICHER_KAFKA__INPUT_TOPICS": orjson.dumps([now.input, topics.input]).decode()}


def outputs_of(topics: Topics) -> Sequence[Message]:
    """The records of the inputs in this topic."""
    records = read_all(topics.bootstrap_servers, topics.output)
    return [each for each in records if headers_of(each)["enricher.source.topic"] == topics.input.encode()]


def as_headlines(count: int) -> list[Sent]:
    """Articles with ids that the backlog does not have."""
    return [as_sent({**article, "id": f"now-{number}"}) for number, article in enumerate(short_articles(count))]


def test_headlines_pass_a_backlog_of_thousands(topics: Topics, tmp_path: Path) -> None:
    """Each is out while most of the backlog still waits; order and offsets are right in both, also after a restart."""
    now, environment = both_of(topics)
    slow = {"ENRICHER_WORKER__MAX_ARTICLES_PER_SECOND": "150"}
    places = publish(topics.bootstrap_servers, topics.input, map(as_sent, short_articles(BACKLOG)))
    with worker(environment | slow, log=tmp_path / "log", stub=True) as first:
        wait_until(lambda: bool(outputs_of(topics)), WORK_S, "the backlog is being worked on")
        headlines = publish(now.bootstrap_servers, now.input, as_headlines(HEADLINES))
        wait_until(lambda: len(outputs_of(now)) == HEADLINES, WORK_S, "the headlines are out")
        done = len(outputs_of(topics))
        assert done < BACKLOG / 3, "they came before two thirds of what was there before them"
        first.kill()
    with worker(environment, "--until-caught-up", log=tmp_path / "log-2", stub=True) as second:
        assert second.wait(WORK_S) == 0
    assert_exactly_once(outputs_of(topics), places)
    assert_exactly_once(outputs_of(now), headlines)
    for each in (topics, now):
        committed = committed_and_ends(each.bootstrap_servers, each.group, each.input)
        assert all(offset == end for offset, end in committed.values())
