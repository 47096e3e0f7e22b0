"""On a real broker, a record that kills its process is found by its successors, whichever they are."""

from __future__ import annotations

import os
import signal
from itertools import cycle
from pathlib import Path

import pytest
from kafka.harness import QUICK_FAILOVER, as_sent, assert_exactly_once, headers_of, publish, short_articles
from kafka.killing_worker import DEATH, KILLING_WORD, MAX_DEATHS, PLACE
from support.forked import Forked
from support.operating import expel
from support.patience import PATIENCE_S
from support.reading import committed_and_ends, read_all
from support.topics import Topics

QUICK = QUICK_FAILOVER | {"ENRICHER_WORKER__PUBLISH_INTERVAL_MS": "50"}
KILLING_WORKER = str(Path(__file__).with_name("killing_worker.py"))
KILLERS = 2


def life(topics: Topics, instance: str, log: Path, **more: str) -> int:
    """Run one process to its end, so that another one need not wait for the end of its session; returns its exit code."""
    settings = topics.environment | QUICK
    environment = os.environ | settings | {"ENRICHER_KAFKA__INSTANCE": instance} | more
    code = Forked([KILLING_WORKER, "run", "--until-caught-up"], environment, log).wait(PATIENCE_S)
    if code:
        expel(topics.bootstrap_servers, topics.group)
    return code


@pytest.mark.broker
def test_records_that_kill_are_dead_lettered_and_all_others_enriched(topics: Topics, tmp_path: Path) -> None:
    """Within a bounded number of starts, on two workers in turn: the count is with the offset, not with the process."""
    articles = short_articles(80)
    killing = [articles[number] for number in (20, 60)]
    for article in killing:
        article["title"] += f" {KILLING_WORD}"
    places = publish(topics.bootstrap_servers, topics.input, map(as_sent, articles))
    log, exits = tmp_path / "workers.log", list[int]()
    for instance in cycle(["worker-0", "worker-1"]):
        exits.append(life(topics, instance, log))
        # One death that may come before the first count at its offset, those that make it suspect, and two alone.
        if exits[-1] != -signal.SIGKILL or len(exits) > KILLERS * (1 + MAX_DEATHS + 2):
            break
    assert exits[-1] == 0, log.read_text("utf-8")[-5_000:]
    assert len(exits) > 1 + MAX_DEATHS + 2, "each dies alone with it twice, and of the others one at least is in time"

    letters = read_all(topics.bootstrap_servers, topics.dead_letters)
    assert {str(article["id"]).encode() for article in killing} == {letter.key() for letter in letters}
    assert {b"KilledWorker"} == {headers_of(letter)["enricher.dlq.error.type"] for letter in letters}
    assert {b"2"} == {headers_of(letter)["enricher.dlq.attempts"] for letter in letters}
    assert_exactly_once([*read_all(topics.bootstrap_servers, topics.output), *letters], places)
    ends = committed_and_ends(topics.bootstrap_servers, topics.group, topics.input).values()
    assert all(committed in (end, -1001) for committed, end in ends)


@pytest.mark.broker
@pytest.mark.parametrize(
    ("death", "place", "exit_code"),
    [
        ("hang", "reading", 7),
        ("no memory", "reading", 1),
        ("kill", "writing", -signal.SIGKILL),
    ],
)
def test_a_record_is_found_by_each_kind_of_death(
    topics: Topics, tmp_path: Path, death: str, place: str, exit_code: int
) -> None:
    """At most four processes end: one before its attempt counts, the one that makes it suspect, and two alone with it."""
    articles = short_articles(12)
    articles[5]["title"] += f" {KILLING_WORD}"
    places = publish(topics.bootstrap_servers, topics.input, map(as_sent, articles))
    log, exits = tmp_path / "workers.log", list[int]()
    how = {DEATH: death, PLACE: place, "ENRICHER_KAFKA__REQUEST_TIMEOUT_S": "5"}
    short = {"ENRICHER_WORKER__STALL_TIMEOUT_S": "6"}
    while (not exits or exits[-1] != 0) and len(exits) <= 1 + MAX_DEATHS + 2:
        exits.append(life(topics, "worker-0", log, **short, **how))
    assert exits[-1] == 0, log.read_text("utf-8")[-5_000:]
    assert {exit_code} == {*exits[:-1]}
    (letter,) = read_all(topics.bootstrap_servers, topics.dead_letters)
    assert letter.key() == str(articles[5]["id"]).encode()
    assert headers_of(letter)["enricher.dlq.error.type"] == b"KilledWorker"
    assert_exactly_once([*read_all(topics.bootstrap_servers, topics.output), letter], places)
