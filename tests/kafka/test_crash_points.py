"""Killed at any point of the loop or of the transaction, the worker loses nothing and doubles nothing."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from kafka.crashing_worker import POINTS, CrashPoint
from kafka.harness import (
    Sent,
    as_sent,
    assert_all_is_there_once,
    is_all_committed,
    publish,
    read_all,
    short_articles,
    wait_until,
    worker,
)
from support.topics import Topics, make_topics

from tools.kafka import Cluster

QUICK = {
    "ENRICHER_KAFKA__SESSION_TIMEOUT_S": "6",
    "ENRICHER_KAFKA__TRANSACTION_TIMEOUT_S": "5",
    "ENRICHER_WORKER__PUBLISH_INTERVAL_MS": "50",
    # So that there are polls and calls of the tokenizer enough to die at the third.
    "ENRICHER_WORKER__CHARS_PER_TOKENIZER_CALL": "2000",
    "ENRICHER_MODEL__PRECISION": "fp32",
}
ARTICLES = 120
REACHED_OTHERWISE = {"recovered", "revoking"}
"""Points that an undisturbed worker never reaches."""
CASES = [(point, nth) for point in POINTS if point not in REACHED_OTHERWISE for nth in (1, 3)]


@dataclass(frozen=True, slots=True)
class Story:
    """The result of two workers in a row over the same articles."""

    topics: Topics
    places: Mapping[tuple[int, int], Sent]
    first_exit: int
    records_then: int
    second_exit: int


def _told(broker: Cluster, point: str, nth: int) -> Story:
    """One worker dies, and a second one of the same name takes over: its producer ends what the first left open."""
    topics = make_topics(broker.bootstrap_servers)
    places = publish(topics.bootstrap_servers, topics.input, map(as_sent, short_articles(ARTICLES)))
    environment = topics.environment | QUICK
    with worker(environment, "--until-caught-up", crash_at=f"{point}:{nth}") as process:
        first_exit = process.wait(120)
    records_then = len(read_all(topics.bootstrap_servers, topics.output))
    with worker(environment, "--until-caught-up") as process:
        second_exit = process.wait(120)
    return Story(topics, places, first_exit, records_then, second_exit)


@pytest.fixture(scope="module")
def stories(broker: Cluster) -> Iterator[Mapping[tuple[str, int], Future[Story]]]:
    """Every point, four at a time: most of each is waiting for the dead worker's session to end."""
    with ThreadPoolExecutor(4) as pool:
        yield {case: pool.submit(_told, broker, *case) for case in CASES}


@pytest.mark.broker
@pytest.mark.parametrize(("point", "nth"), CASES)
def test_a_worker_killed_there_is_continued_by_its_successor(
    stories: Mapping[tuple[str, int], Future[Story]], point: str, nth: int
) -> None:
    """Whatever was under way, every article has one output, and offsets are committed to the end."""
    story = stories[point, nth].result()
    assert (-signal.SIGKILL, 0) == (story.first_exit, story.second_exit)
    assert story.records_then < ARTICLES, "it died too late to prove anything"
    assert_all_is_there_once(story.topics, story.places)


@pytest.mark.broker
def test_a_worker_killed_while_its_partitions_are_taken_is_continued(topics: Topics) -> None:
    """A second member joins, and the first dies while it gives up its partitions."""
    places = publish(topics.bootstrap_servers, topics.input, map(as_sent, short_articles(600)))
    environment = topics.environment | QUICK
    with worker(environment, crash_at="revoking") as first:
        wait_until(lambda: bool(read_all(topics.bootstrap_servers, topics.output)), 60, "the first records")
        with worker(environment | {"ENRICHER_KAFKA__INSTANCE": "worker-1"}) as second:
            assert first.wait(60) == -signal.SIGKILL
            wait_until(lambda: is_all_committed(topics), 90, "everything committed")
            second.terminate()
            assert second.wait(30) == 0
    assert_all_is_there_once(topics, places)


def test_a_point_is_named_with_or_without_a_number() -> None:
    """Any other name is refused with the list."""
    assert CrashPoint("flushed", 3) == CrashPoint.parse("flushed:3")
    assert CrashPoint("begun") == CrashPoint.parse("begun")
    for text in ("nowhere", "begun:", "begun:0", "begun:x", ""):
        with pytest.raises(ValueError, match="offsets-sent"):
            CrashPoint.parse(text)
