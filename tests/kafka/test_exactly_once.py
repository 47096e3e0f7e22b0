"""Exactly-once on a real broker, with real workers in their own processes."""

from __future__ import annotations

import random
import signal
import subprocess

import orjson
import pytest
from kafka.harness import (
    as_sent,
    assert_all_is_there_once,
    assert_exactly_once,
    headers_of,
    is_all_committed,
    publish,
    read_all,
    sample_articles,
    short_articles,
    wait_until,
    worker,
)
from support.forked import Forked
from support.topics import Topics

pytestmark = pytest.mark.broker

# A dead worker's partitions move after the session, its open transaction ends after the transaction timeout.
QUICK_FAILOVER = {"ENRICHER_KAFKA__SESSION_TIMEOUT_S": "6", "ENRICHER_KAFKA__TRANSACTION_TIMEOUT_S": "5"}


def test_sample_articles_give_one_record_each_and_lag_reaches_zero(topics: Topics) -> None:
    """43 articles give 43 enriched records with correct entities, and committed offsets at the input's end."""
    articles = sample_articles()
    places = publish(topics.bootstrap_servers, topics.input, map(as_sent, articles))
    with worker(topics.environment, "--until-caught-up") as process:
        assert process.wait(120) == 0
    records = read_all(topics.bootstrap_servers, topics.output)
    assert_exactly_once(records, places)
    assert len(records) == 43
    texts = {article["id"]: article for article in articles}
    entities = 0
    for message in records:
        record = orjson.loads(message.value() or b"")
        for entity in record["entities"]:
            assert texts[record["id"]][entity["field"]][entity["start"] : entity["end"]] == entity["text"]
        entities += len(record["entities"])
    assert entities > 1_000
    assert is_all_committed(topics)


def test_every_article_is_there_once_after_kill_9(topics: Topics) -> None:
    """A worker is killed in the middle of 2,000 articles; a second one takes over."""
    places = publish(topics.bootstrap_servers, topics.input, map(as_sent, short_articles(2_000)))
    environment = {**topics.environment, **QUICK_FAILOVER}
    with worker(environment) as first:
        wait_until(lambda: len(read_all(topics.bootstrap_servers, topics.output)) > 200, 60, "the first 200 records")
        first.kill()
        first.wait()
    before = len(read_all(topics.bootstrap_servers, topics.output))
    assert before < 2_000, "the kill came too late to prove anything"
    with worker({**environment, "ENRICHER_KAFKA__INSTANCE": "worker-1"}, "--until-caught-up") as second:
        assert second.wait(120) == 0
    assert_all_is_there_once(topics, places)


def test_every_article_is_there_once_while_a_worker_comes_and_goes(topics: Topics) -> None:
    """Two workers, one of them stopped or killed and started again and again under load."""
    places = publish(topics.bootstrap_servers, topics.input, map(as_sent, short_articles(4_000, seed=2)))
    environment = {**topics.environment, **QUICK_FAILOVER}
    chosen = random.Random(3)
    with worker(environment, "--until-caught-up") as steady:
        for _ in range(4):
            with worker({**environment, "ENRICHER_KAFKA__INSTANCE": "worker-1"}) as guest:
                wait_for(steady, seconds=chosen.uniform(3.5, 6))
                if chosen.random() < 0.5:
                    guest.send_signal(signal.SIGTERM)
                    # On a busy machine the signal may come before the interpreter has begun to listen.
                    assert guest.wait(30) in {0, -signal.SIGTERM}
        assert steady.wait(180) == 0
    assert_all_is_there_once(topics, places)


def wait_for(process: Forked, seconds: float) -> None:
    """Let a process work for a while; it may end early."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        return


def test_2000_articles_of_all_sizes_with_bad_ones_among_them(topics: Topics) -> None:
    """From a headline to 20,000 words, every twentieth bad: each is in the output or in the dead letters, once."""
    chosen = random.Random(4)
    words = " ".join(article["body"] for article in sample_articles()).split()
    inputs, bad = [], set()
    sizes = [20_000, 8_000, 3_000, *[chosen.randrange(300, 900) for _ in range(20)]]
    for number in range(2_000):
        size = sizes[number // 80] if number % 80 == 7 and number // 80 < len(sizes) else chosen.randrange(1, 30)
        start = chosen.randrange(len(words))
        body = " ".join((words * 2)[start : start + size])
        sent = as_sent({"id": f"mixed-{number}", "body": f"{body} news"})
        if number % 20 == 3:
            sent = type(sent)(
                sent.key, chosen.choice([b"{", b"[]", b'{"id": 7}', b"\xff\xfe", (sent.value or b"")[:-5]])
            )
            bad.add(sent.key)
        inputs.append(sent)
    places = publish(topics.bootstrap_servers, topics.input, inputs)
    with worker(topics.environment, "--until-caught-up") as process:
        assert process.wait(240) == 0
    dead = read_all(topics.bootstrap_servers, topics.dead_letters)
    assert_exactly_once(read_all(topics.bootstrap_servers, topics.output) + dead, places)
    assert {message.key() for message in dead} == bad
    assert {headers_of(message)["enricher.dlq.stage"] for message in dead} == {b"decode"}
    assert is_all_committed(topics)
