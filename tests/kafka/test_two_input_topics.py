"""Two input topics of one worker, on a real broker: headlines do not wait for the backlog of the other topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from confluent_kafka import Message
from kafka.harness import Sent, as_sent, assert_exactly_once, headers_of, publish, short_articles, worker
from support.patience import wait_until
from support.reading import committed_and_ends, read_all
from support.topics import Topics, make_topics

pytestmark = pytest.mark.broker

WORK_S = 120.0
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
