"""On a real broker, workers with a broken mapping: they end at their limits, and the topic is not dead-lettered."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from kafka.harness import as_sent, assert_exactly_once, headers_of, is_all_committed, publish, short_articles, worker
from kafka.test_exactly_once import QUICK_FAILOVER, WORK_S, has_partitions
from support.patience import wait_until
from support.reading import committed_and_ends, read_all
from support.topics import Topics

pytestmark = pytest.mark.broker

WORKERS, ARTICLES, LIMIT, SPARE = 3, 3_000, 100, 5
MAX_IN_A_ROW = "ENRICHER_DEAD_LETTERS__MAX_IN_A_ROW"
BROKEN = {"ENRICHER_ARTICLES__FIELDS": '{"id": "/uuid"}', MAX_IN_A_ROW: str(LIMIT)}
UNLIMITED = {MAX_IN_A_ROW: "0", "ENRICHER_DEAD_LETTERS__MAX_RATIO": "0"}


def named(index: int) -> dict[str, str]:
    """A worker's own name."""
    return {"ENRICHER_KAFKA__INSTANCE": f"worker-{index}"}


def letters_in(topics: Topics) -> int:
    """How many dead letters readers see. No offset is committed beyond them, since nothing was enriched."""
    letters = len(read_all(topics.bootstrap_servers, topics.dead_letters))
    places = committed_and_ends(topics.bootstrap_servers, topics.group, topics.input).values()
    assert sum(max(0, committed) for committed, _ in places) == letters
    return letters


def test_three_workers_with_a_broken_mapping_end_at_their_limits(topics: Topics, tmp_path: Path) -> None:
    """Then they are started and killed again and again; once the mapping is repaired, all the rest is enriched."""
    environment = topics.environment | QUICK_FAILOVER | BROKEN
    logs = [tmp_path / f"{index}.log" for index in range(WORKERS)]
    with ExitStack() as workers:
        running = [
            workers.enter_context(worker(environment | named(index), log=log, stub=True))
            for index, log in enumerate(logs)
        ]
        for log in logs:
            wait_until(partial(has_partitions, log), WORK_S, "all have partitions")
        places = publish(topics.bootstrap_servers, topics.input, map(as_sent, short_articles(ARTICLES)))
        assert [12] * WORKERS == [process.wait(WORK_S) for process in running]
    stopped = letters_in(topics)
    assert LIMIT <= stopped <= WORKERS * LIMIT
    said = logs[0].read_text("utf-8")
    assert "id is missing at /uuid" in said
    assert "decode:InvalidArticle" in said
    assert short_articles(1)[0]["body"] not in said

    for start in range(4):
        log = tmp_path / f"again-{start}.log"
        with worker(environment | named(start % 2), log=log, stub=True) as process:
            if start % 2:
                wait_until(partial(has_partitions, log), WORK_S, "it has partitions")
                process.send_signal(signal.SIGKILL)
            assert process.wait(WORK_S) in {12, -signal.SIGKILL}
    # A start that does not know the counts of all partitions yet may fill the row of one of those that it knows.
    assert stopped <= letters_in(topics) <= WORKERS * LIMIT + 4 * SPARE

    with worker(topics.environment | QUICK_FAILOVER | named(0), "--until-caught-up", stub=True) as repaired:
        assert repaired.wait(WORK_S) == 0
    letters = read_all(topics.bootstrap_servers, topics.dead_letters)
    assert_exactly_once([*read_all(topics.bootstrap_servers, topics.output), *letters], places)
    assert is_all_committed(topics)


def test_without_limits_everything_is_dead_lettered(topics: Topics) -> None:
    """The control: nothing else keeps a worker with this mapping from it."""
    places = publish(topics.bootstrap_servers, topics.input, map(as_sent, short_articles(1_000)))
    with worker(topics.environment | BROKEN | UNLIMITED, "--until-caught-up", stub=True) as process:
        assert process.wait(WORK_S) == 0
    assert len(places) == letters_in(topics)


def test_outputs_too_large_for_their_topic_are_cut_before_they_are_committed(topics: Topics, tmp_path: Path) -> None:
    """Only encoding shows them, in the open transaction: it is aborted, and what is within the limit is committed again."""
    publish(topics.bootstrap_servers, topics.input, map(as_sent, large_articles(200)))
    tiny = {MAX_IN_A_ROW: "20", "ENRICHER_ARTICLES__MAX_RECORD_BYTES": "4096", "ENRICHER_OUTPUT__ARTICLE": "whole"}
    log = tmp_path / "worker.log"
    with worker(topics.environment | tiny, "--until-caught-up", log=log, stub=True) as process:
        assert process.wait(WORK_S) == 12
    letters = read_all(topics.bootstrap_servers, topics.dead_letters)
    assert {b"OutputTooLarge"} == {headers_of(letter)["enricher.dlq.error.type"] for letter in letters}
    assert letters_in(topics) == 20


def large_articles(number: int) -> list[dict[str, str]]:
    """Articles that take more than a record may."""
    return [{"id": f"large-{index}", "body": "news " * 1_500} for index in range(number)]
