"""`enricher run` that stands still as a process: stopped by a signal, or with the interpreter's lock held by C code."""

from __future__ import annotations

import math
import os
import re
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from health.hanging import SILENT_S
from health.looking import Answer, get, until
from health.test_health_run import START_S, WORK_S, Running, articles, running
from kafka.harness import assert_all_is_there_once, is_all_committed, publish
from support.patience import PATIENCE_S
from support.topics import Topics

pytestmark = pytest.mark.broker

QUICK = {
    "ENRICHER_KAFKA__SESSION_TIMEOUT_S": "6",
    "ENRICHER_KAFKA__TRANSACTION_TIMEOUT_S": "5",
    "ENRICHER_KAFKA__REQUEST_TIMEOUT_S": "5",
    "ENRICHER_WORKER__STALL_TIMEOUT_S": "6",
    "ENRICHER_LOG__FORMAT": "text",
}
IMPATIENT_S = 3.0
"""The timeout of a probe, as in the chart."""


def pids(parent: Running) -> Mapping[int, int]:
    """The process ids of the parent's children, by number."""
    return {each["number"]: each["pid"] for each in parent.get("/status.json").json["processes"]}


def silence_s(parent: Running, number: int) -> float:
    """The age of a child's last report, as the metric says."""
    return parent.metric("enricher_process_report_age_seconds", process=str(number))


def freeze(parent: Running, numbers: Sequence[int]) -> Mapping[int, int]:
    """Stop these children, and wait until the parent shows it everywhere; returns the process ids of all before."""
    before = pids(parent)
    for number in numbers:
        os.kill(before[number], signal.SIGSTOP)
    until(lambda: parent.probes() == (200, 503, 200), "it is not ready")
    until(lambda: f"{len(numbers)} silent" in parent.get("/readyz").text, "it says why")
    until(lambda: all(silence_s(parent, number) > SILENT_S + 1 for number in numbers), "the last report grows old")
    for number in numbers:
        assert math.isnan(parent.metric("enricher_state", process=str(number))), "old numbers are not shown"
        assert 502 == parent.get(f"/process/{number}/status.json").status
    return before


def test_frozen_processes_are_seen_killed_and_replaced(topics: Topics, tmp_path: Path) -> None:
    """One of two, then both: not ready within seconds, with a growing age; the parent lives on and restores them.

    Every article comes out once.
    """
    places = publish(topics.bootstrap_servers, topics.input, articles(200))
    with running(tmp_path, {**topics.environment, **QUICK}, "--processes", "2") as parent:
        until(lambda: parent.probes() == (200, 200, 200), "all are ready", START_S)
        until(lambda: is_all_committed(topics), "all is published", WORK_S)
        before = freeze(parent, [0])
        places |= publish(topics.bootstrap_servers, topics.input, articles(50, seed=2))
        until(lambda: is_all_committed(topics), "the other process has its partitions", WORK_S)
        until(lambda: parent.probes() == (200, 200, 200), "all are ready again", START_S)
        assert {1: before[1]}.items() == pids(parent).items() & before.items()
        before = freeze(parent, [0, 1])
        places |= publish(topics.bootstrap_servers, topics.input, articles(50, seed=3))
        assert SILENT_S < parent.metric("enricher_oldest_age_seconds", process="none")
        until(lambda: parent.probes() == (200, 200, 200), "all are ready again", START_S)
        assert not pids(parent).items() & before.items()
        until(lambda: is_all_committed(topics), "all is published", WORK_S)
        parent.process.terminate()
        assert 0 == parent.process.wait(PATIENCE_S)
    assert_all_is_there_once(topics, places)
    log = (tmp_path / "log").read_text()
    assert 3 == len(re.findall(r"has not reported for \d+ s: killing it", log))
    assert 3 == log.count("ended with code 137: restarting it")


def test_a_worker_that_stands_still_answers_no_probe_and_ends_by_itself(topics: Topics, tmp_path: Path) -> None:
    """While it is stopped, and while C code holds the interpreter's lock; then a timer in C ends it, with the stacks."""
    with running(tmp_path, {**topics.environment, **QUICK}) as worker:
        until(lambda: worker.probes() == (200, 200, 200), "it is ready", START_S)
        worker.process.suspend()
        assert not answers(worker)
        worker.process.send_signal(signal.SIGCONT)
        until(lambda: worker.probes() == (200, 200, 200), "it answers again", START_S)
        worker.gate("holding").touch()
        publish(topics.bootstrap_servers, topics.input, articles(5))
        until(lambda: not answers(worker), "it answers no more", START_S)
        assert 1 == worker.process.wait(PATIENCE_S)
    log = (tmp_path / "log").read_text()
    assert "Timeout (0:00:" in log
    assert "in _hold_the_lock" in log, "the stack of the thread that holds the lock"


def answers(worker: Running) -> bool:
    """Whether it answers its liveness probe in time."""
    try:
        answer: Answer = get(worker.port, "/livez", timeout_s=IMPATIENT_S)
    except OSError:
        return False
    return answer.status == 200
