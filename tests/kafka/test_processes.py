"""`enricher run --processes`: several workers under one parent, on a real broker."""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from pathlib import Path

import orjson
import psutil
import pytest
from kafka.harness import (
    as_sent,
    assert_all_is_there_once,
    publish,
    read_all,
    short_articles,
    wait_until,
    worker,
)
from support.forked import Forked
from support.topics import Topics

pytestmark = pytest.mark.broker

TEXT = {"ENRICHER_LOG__FORMAT": "text"}
QUICK_FAILOVER = {
    "ENRICHER_KAFKA__SESSION_TIMEOUT_S": "6",
    "ENRICHER_KAFKA__TRANSACTION_TIMEOUT_S": "5",
    "ENRICHER_WORKER__RESTART_PAUSE_S": "0",
}


def published(topics: Topics) -> int:
    """How many records a reader sees now."""
    return len(read_all(topics.bootstrap_servers, topics.output))


def children_of(process: Forked) -> Sequence[psutil.Process]:
    """The workers under a parent, by their number."""
    children = psutil.Process(process.pid).children()
    return sorted(children, key=lambda child: child.cmdline()[child.cmdline().index("--process") + 1])


def assert_gone(processes: Sequence[psutil.Process]) -> None:
    """Wait until none of them is left."""
    _, alive = psutil.wait_procs(processes, timeout=40)
    assert alive == []


def test_two_processes_share_a_backlog(topics: Topics, tmp_path: Path) -> None:
    """Both read and publish under their own names; every article comes out once, and the parent exits with 0."""
    places = publish(topics.bootstrap_servers, topics.input, map(as_sent, short_articles(1_500)))
    log, counts = tmp_path / "log", tmp_path / "counts.json"
    with worker(
        {**topics.environment, **TEXT}, "--processes", "2", "--until-caught-up", "--summary", str(counts), log=log
    ) as parent:
        assert parent.wait(240) == 0
    assert_all_is_there_once(topics, places)
    tallies = [orjson.loads((tmp_path / f"counts-{index}.json").read_bytes()) for index in (0, 1)]
    assert sum(counters["published"] for counters in tallies) == 1_500
    assert min(counters["published"] for counters in tallies) > 0
    said = log.read_text()
    assert "all 2 processes are ready" in said
    for index in (0, 1):
        assert re.search(rf"^\[{index}\] .* done: \d+ published", said, re.MULTILINE)


def test_a_log_of_json_has_the_process_inside_each_line(topics: Topics, tmp_path: Path) -> None:
    """The parent's own lines have none; all of them are objects."""
    log = tmp_path / "log"
    with worker(topics.environment, "--processes", "2", "--until-caught-up", log=log) as process:
        assert 0 == process.wait(60)
    lines = [orjson.loads(line) for line in log.read_bytes().splitlines()]
    done = [line.get("process") for line in lines if line["message"].startswith("done: ")]
    assert [0, 1] == sorted(done)
    assert any("process" not in line for line in lines)


def test_a_child_killed_without_a_word_is_started_again(topics: Topics, tmp_path: Path) -> None:
    """SIGKILL of one of two: another takes its slot and its name, and every article comes out once."""
    places = publish(topics.bootstrap_servers, topics.input, map(as_sent, short_articles(1_500, seed=5)))
    log = tmp_path / "log"
    with worker({**topics.environment, **QUICK_FAILOVER}, "--processes", "2", "--until-caught-up", log=log) as parent:
        wait_until(lambda: published(topics) > 200, 90, "the first 200 records")
        children_of(parent)[0].kill()
        assert published(topics) < 1_500, "the kill came too late to prove anything"
        assert parent.wait(240) == 0
    assert_all_is_there_once(topics, places)
    assert "process 0 ended with code 137: restarting it" in log.read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_all_in_good_order(topics: Topics, tmp_path: Path, number: int) -> None:
    """The children drain and leave, the parent ends with 0, no process is left, and a successor finds the rest."""
    places = publish(topics.bootstrap_servers, topics.input, map(as_sent, short_articles(1_000, seed=6)))
    log = tmp_path / "log"
    with worker({**topics.environment, **TEXT}, "--processes", "2", log=log) as parent:
        wait_until(lambda: published(topics) > 100, 90, "the first 100 records")
        children = children_of(parent)
        assert len(children) == 2
        parent.send_signal(number)
        assert parent.wait(60) == 0
    assert_gone(children)
    said = log.read_text()
    assert len(re.findall(r"^\[[01]\] .* done: ", said, re.MULTILINE)) == 2, said
    with worker(topics.environment, "--until-caught-up") as successor:
        assert successor.wait(120) == 0
    assert_all_is_there_once(topics, places)


def test_children_end_with_a_parent_that_was_killed(topics: Topics) -> None:
    """They are not left behind to fence a successor; nothing is lost or doubled."""
    places = publish(topics.bootstrap_servers, topics.input, map(as_sent, short_articles(1_000, seed=7)))
    with worker(topics.environment, "--processes", "2") as parent:
        wait_until(lambda: published(topics) > 100, 90, "the first 100 records")
        children = children_of(parent)
        parent.kill()
        assert_gone(children)
    with worker(topics.environment, "--processes", "2", "--until-caught-up") as successor:
        assert successor.wait(120) == 0
    assert_all_is_there_once(topics, places)


def test_a_mistake_in_the_settings_ends_all_at_once_with_its_code(topics: Topics, tmp_path: Path) -> None:
    """What only a child can find out, such as a window that the model does not take, is not tried again."""
    log = tmp_path / "log"
    wrong = {**topics.environment, "ENRICHER_BATCHING__MAX_WINDOW_TOKENS": "100000"}
    with worker(wrong, "--processes", "2", log=log) as parent:
        assert parent.wait(60) == 2
    said = log.read_text()
    assert "batching.max_window_tokens is 100000" in said
    assert "restarting it" not in said


def test_without_a_broker_a_model_that_is_not_there_ends_all_with_its_code(tmp_path: Path) -> None:
    """Code 3, as one worker alone would."""
    environment = {"ENRICHER_MODEL__SOURCE": str(tmp_path / "nothing")}
    with worker(environment, "--processes", "2", log=tmp_path / "log") as parent:
        assert parent.wait(60) == 3
