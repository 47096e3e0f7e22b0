"""Exactly-once on a real broker, with real workers in their own processes."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path

import orjson
import pytest
from kafka.harness import (
    QUICK_FAILOVER,
    Sent,
    as_sent,
    assert_all_is_there_once,
    assert_exactly_once,
    is_all_committed,
    publish,
    published,
    sample_articles,
    short_articles,
    worker,
)
from support.patience import wait_until
from support.reading import read_all
from support.topics import Topics

pytestmark = pytest.mark.broker

GUEST = {"ENRICHER_KAFKA__INSTANCE": "worker-1"}
WORK_S = 120.0


def test_sample_articles_give_one_record_each_and_lag_reaches_zero(topics: Topics) -> None:
    """4 articles give 4 enriched records with correct entities, and committed offsets at the input's end."""
    articles = sample_articles()[:4]
    places = publish(topics.bootstrap_servers, topics.input, map(as_sent, articles))
    with worker(topics.environment, "--until-caught-up") as process:
        assert process.wait(WORK_S) == 0
    records = read_all(topics.bootstrap_servers, topics.output)
    assert_exactly_once(records, places)
    assert len(records) == 4
    texts = {article["id"]: article for article in articles}
    entities = 0
    for message in records:
        record = orjson.loads(message.value() or b"")
        for entity in record["entities"]:
            assert texts[record["id"]][entity["field"]][entity["start"] : entity["end"]] == entity["text"]
        entities += len(record["entities"])
    assert entities > 100
    assert is_all_committed(topics)


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
