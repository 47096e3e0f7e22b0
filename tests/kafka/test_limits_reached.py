"""On a real broker, workers with a broken mapping: they end at their limits, and the topic is not dead-lettered."""

from __future__ import annotations

from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path

import pytest
from commands.cli_runner import run
from confluent_kafka import Consumer
from kafka.harness import (
    QUICK_FAILOVER,
    as_sent,
    assert_exactly_once,
    headers_of,
    is_all_committed,
    publish,
    short_articles,
    worker,
)
from kafka.test_exactly_once import WORK_S, has_partitions
from support.operating import client
from support.patience import wait_until
from support.reading import committed_and_ends, read_all
from support.topics import Topics
from typer.testing import Result

pytestmark = pytest.mark.broker

WORKERS, ARTICLES, LIMIT = 3, 3_000, 100
MAX_IN_A_ROW = "ENRICHER_DEAD_LETTERS__MAX_IN_A_ROW"
BROKEN = {"ENRICHER_ARTICLES__FIELDS": '{"id": "/uuid"}', MAX_IN_A_ROW: str(LIMIT)}


def named(index: int) -> dict[str, str]:
    """A worker's own name."""
    return {"ENRICHER_KAFKA__INSTANCE": f"worker-{index}"}


def letters_in(topics: Topics) -> int:
    """How many dead letters readers see. No offset is committed beyond them, since nothing was enriched."""
    letters = len(read_all(topics.bootstrap_servers, topics.dead_letters))
    places = committed_and_ends(topics.bootstrap_servers, topics.group, topics.input).values()
    assert sum(max(0, committed) for committed, _ in places) == letters
    return letters


def test_a_broken_mapping_ends_all_workers_until_it_is_accepted(topics: Topics, tmp_path: Path) -> None:
    """Further starts add nothing; once it is repaired and accepted, all the rest is enriched, exactly once."""
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
    said = "".join(log.read_text("utf-8") for log in logs)
    assert "id is missing at /uuid" in said
    assert "decode:InvalidArticle" in said
    assert short_articles(1)[0]["body"] not in said

    repaired = topics.environment | QUICK_FAILOVER | named(0)
    for again in (environment | named(0), environment | named(1), repaired | {MAX_IN_A_ROW: str(LIMIT)}):
        log = tmp_path / "again.log"
        with worker(again, log=log, stub=True) as process:
            assert process.wait(WORK_S) == 12
        assert f"enricher dead-letters accept {topics.group}" in log.read_text("utf-8")
    assert stopped == letters_in(topics)

    with closing(Consumer(client(topics.bootstrap_servers, group_id=topics.group))) as member:
        member.subscribe([topics.output])
        wait_until(lambda: bool(member.poll(0.1) or member.assignment()), WORK_S, "the group has a member")
        refused = accept(topics)
        assert (1, True) == (refused.exit_code, "has members" in str(refused.exception))
    accepted = accept(topics)
    assert 0 == accepted.exit_code, accepted.exception
    assert "accepted (decode:InvalidArticle)" in accepted.stdout
    assert "no worker" in accept(topics).stdout

    with worker(repaired, "--until-caught-up", stub=True) as process:
        assert process.wait(WORK_S) == 0
    letters = read_all(topics.bootstrap_servers, topics.dead_letters)
    assert stopped == len(letters)
    assert_exactly_once([*read_all(topics.bootstrap_servers, topics.output), *letters], places)
    assert is_all_committed(topics)


def accept(topics: Topics) -> Result:
    """Let the workers go on."""
    return run("dead-letters", "accept", topics.group, env=topics.environment)


def test_outputs_too_large_for_their_topic_count_before_the_commit(topics: Topics, tmp_path: Path) -> None:
    """Only encoding shows them, in the open transaction: it is aborted, and what is within the limit is committed again."""
    large = [{"id": f"large-{index}", "body": "news " * 1_500} for index in range(60)]
    publish(topics.bootstrap_servers, topics.input, map(as_sent, large))
    tiny = {MAX_IN_A_ROW: "20", "ENRICHER_ARTICLES__MAX_RECORD_BYTES": "4096", "ENRICHER_OUTPUT__ARTICLE": "whole"}
    log = tmp_path / "worker.log"
    with worker(topics.environment | tiny, "--until-caught-up", log=log, stub=True) as process:
        assert process.wait(WORK_S) == 12
    letters = read_all(topics.bootstrap_servers, topics.dead_letters)
    assert {b"OutputTooLarge"} == {headers_of(letter)["enricher.dlq.error.type"] for letter in letters}
    assert letters_in(topics) == 20
