"""Exactly-once on a real broker, with workers that come and go or read two topics, and the versions of what they write."""

from __future__ import annotations

import os
import signal
from collections import defaultdict
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
    source_of,
    worker,
)
from support.forked import Forked
from support.operating import expel
from support.patience import PATIENCE_S, wait_until
from support.reading import committed_and_ends, read_all
from support.stub_worker import STUB_WORKER
from support.topics import Topics, make_topics
from verify.pair import verified

pytestmark = pytest.mark.broker

GUEST = {"ENRICHER_KAFKA__INSTANCE": "worker-1"}
WORK_S = 120.0


def test_every_article_is_there_once_while_a_worker_comes_and_goes(topics: Topics, tmp_path: Path) -> None:
    """Two workers, one of them killed, started again and stopped while both have work."""
    places: dict[tuple[int, int], Sent] = {}
    environment = topics.environment | QUICK_FAILOVER | {"ENRICHER_WORKER__MAX_IN_FLIGHT_ARTICLES": "4"}
    with worker(environment, stub=True) as steady:
        for seed, number in enumerate((signal.SIGKILL, signal.SIGTERM)):
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


BACKLOG, HEADLINES = 1_500, 10


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
    expel(topics.bootstrap_servers, topics.group)  # else the next one waits until the session ends
    with worker(environment, "--until-caught-up", log=tmp_path / "log-2", stub=True) as second:
        assert second.wait(WORK_S) == 0
    assert_exactly_once(outputs_of(topics), places)
    assert_exactly_once(outputs_of(now), headlines)
    for each in (topics, now):
        committed = committed_and_ends(each.bootstrap_servers, each.group, each.input)
        assert all(offset == end for offset, end in committed.values())


QUICK = {
    **QUICK_FAILOVER,
    "ENRICHER_WORKER__MAX_IN_FLIGHT_ARTICLES": "10",  # so that there are transactions enough to die in the third
}
Versions = dict[tuple[int, int], list[int]]


def versions_in(topics: Topics, isolation: str = "read_committed") -> Versions:
    """By partition and offset of the input, the versions of all outputs."""
    found: Versions = defaultdict(list)
    for message in read_all(topics.bootstrap_servers, topics.output, isolation):
        found[source_of(message)].append(int(headers_of(message)["enricher.version"] or b""))
    return found


def test_attempts_share_a_version_and_a_replay_replaces_the_same_input(
    topics: Topics,
) -> None:
    """The worker is killed before it commits, and its successor writes the same again; then another model does."""
    again = make_topics(topics.bootstrap_servers)
    articles = short_articles(40)
    inputs = [as_sent(each) for each in (*articles, *articles[:10])] + [Sent(b"short-3", None)]
    places = publish(topics.bootstrap_servers, topics.input, inputs)
    environment = topics.environment | QUICK | {"ENRICHER_KAFKA__EPOCH": "2"}
    with worker(environment, "--until-caught-up", crash_at="offsets-sent:3") as process:
        assert -signal.SIGKILL == process.wait(PATIENCE_S)
    expel(topics.bootstrap_servers, topics.group)
    with worker(environment, "--until-caught-up", stub=True) as process:
        assert 0 == process.wait(PATIENCE_S)

    attempts, committed = versions_in(topics, "read_uncommitted"), versions_in(topics)
    assert places.keys() == committed.keys()
    assert any(len(versions) > 1 for versions in attempts.values()), "nothing was written twice"
    assert {(place, (2 << 55 | place[1] << 12,)) for place in places} == {
        (place, tuple(set(versions))) for place, versions in attempts.items()
    }
    assert verified(topics).holds

    chosen = ("--into", again.output, "--dead-letters", again.dead_letters, "--group", again.group)
    program = [STUB_WORKER, "replay", *chosen]
    with Forked(program, {**os.environ, **environment, "ENRICHER_MODEL__GENERATION": "1"}) as process:
        assert 0 == process.wait(PATIENCE_S)
    for (partition, offset), [version] in versions_in(again).items():
        assert committed[partition, offset] < [version]
        assert [version] < committed.get((partition, offset + 1), [2**63])
