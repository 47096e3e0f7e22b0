"""`enricher run` that stands still as a process: stopped by a signal, or with the interpreter's lock held by C code."""

from __future__ import annotations

import re
from pathlib import Path

import psutil
import pytest
from health.looking import Answer, get, until
from health.test_health_run import PROBES, START_S, WORK_S, Running, articles, running
from kafka.harness import QUICK_FAILOVER, assert_all_is_there_once, is_all_committed, publish
from support.patience import PATIENCE_S
from support.topics import Topics

from tools.ports import free_row
from tools.waiting import suspend

pytestmark = pytest.mark.broker

QUICK = {
    **QUICK_FAILOVER,
    "ENRICHER_KAFKA__REQUEST_TIMEOUT_S": "5",
    "ENRICHER_WORKER__STALL_TIMEOUT_S": "6",
    "ENRICHER_LOG__FORMAT": "text",
}
IMPATIENT_S = 3.0
"""The timeout of a probe, as in the chart."""


def test_a_frozen_process_is_seen_and_its_end_ends_all(topics: Topics, tmp_path: Path) -> None:
    """Its parent is neither alive nor ready within the timeout of a probe, so that Kubernetes restarts the container.

    The restart is played by a kill of the frozen process and by another run; every article comes out once.
    """
    port = free_row(5)
    ports = {"ENRICHER_HEALTH__PORT": str(port), "ENRICHER_HEALTH__PROBE_PORT": str(port + 2)}
    environment = {**topics.environment, **QUICK, **ports}
    places = publish(topics.bootstrap_servers, topics.input, articles(200))

    def probes() -> tuple[int, ...]:
        return tuple(get(port + 2, path, timeout_s=IMPATIENT_S).status for path in PROBES)

    with running(tmp_path, environment, "--processes", "2") as parent:
        until(lambda: probes() == (200, 200, 200), "all are ready", START_S)
        until(lambda: is_all_committed(topics), "all is published", WORK_S)
        frozen, other = psutil.Process(parent.process.pid).children()
        suspend(frozen)
        until(lambda: probes() == (503, 503, 503), "it is seen")
        assert re.search(r"process \d: no answer", get(port + 2, "/livez").text)
        places |= publish(topics.bootstrap_servers, topics.input, articles(50, seed=2))
        until(lambda: is_all_committed(topics), "the other process has its partitions", WORK_S)
        frozen.kill()
        assert 137 == parent.process.wait(PATIENCE_S)
        assert not other.is_running()
    with running(tmp_path, environment, "--processes", "2", "--until-caught-up") as successor:
        assert 0 == successor.process.wait(WORK_S)
    assert_all_is_there_once(topics, places)


def test_a_worker_that_stands_still_answers_no_probe_and_ends_by_itself(topics: Topics, tmp_path: Path) -> None:
    """While C code holds the interpreter's lock; then a timer in C ends it, with the stacks."""
    with running(tmp_path, {**topics.environment, **QUICK}) as worker:
        until(lambda: worker.probes() == (200, 200, 200), "it is ready", START_S)
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
