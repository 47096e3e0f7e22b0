"""`enricher run` and its probes, on a real broker, through every state that a worker can be in."""

from __future__ import annotations

import math
import os
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from health.looking import Answer, get, until
from kafka.harness import (
    Sent,
    as_sent,
    is_all_committed,
    publish,
    short_articles,
)
from prometheus_client.parser import text_string_to_metric_families
from support.forked import Forked
from support.patience import PATIENCE_S
from support.topics import Topics

from tools.chaos.proxy import Proxy
from tools.chaos.rules import Cut, Match
from tools.ports import free_row
from tools.waiting import suspend

PROBES = ("/livez", "/readyz", "/startupz")
START_S, WORK_S = 120.0, 180.0


@dataclass(frozen=True, slots=True)
class Running:
    """A process of `enricher run`. `folder` has its gates (see `hanging`) and its log."""

    process: Forked
    folder: Path

    @property
    def port(self) -> int:
        """The port of the status page, from the log."""
        return self._port("status page")

    @property
    def probe_port(self) -> int:
        """The port of the probes, from the log."""
        return self._port("probes")

    def _port(self, what: str) -> int:
        said = re.search(rf"{what} http://127\.0\.0\.1:(\d+)/", (self.folder / "log").read_text())
        if said is None:
            raise ConnectionError("not said yet")
        return int(said[1])

    def get(self, path: str) -> Answer:
        """Send a request. Raises OSError if there is no answer."""
        return get(self.probe_port if path in PROBES else self.port, path)

    def probes(self) -> tuple[int, ...]:
        """The status codes of /livez, /readyz and /startupz."""
        return tuple(self.get(path).status for path in PROBES)

    def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that have these labels; NaN, which equals nothing, before there is a worker."""
        lines = [
            line for line in self.get("/metrics").text.splitlines() if line.startswith(name)
        ]  # all take 10 ms to parse
        families = text_string_to_metric_families("\n".join(lines))
        samples = [sample for family in families for sample in family.samples if sample.name == name]
        values = [sample.value for sample in samples if labels.items() <= sample.labels.items()]
        return sum(values) if values else math.nan

    def gate(self, name: str) -> Path:
        """The file whose existence makes it wait."""
        return self.folder / name


@contextmanager
def running(
    folder: Path, environment: Mapping[str, str], *arguments: str, gates: Sequence[str] = ()
) -> Iterator[Running]:
    """Start it, and kill it at the end if it still runs."""
    for gate in gates:
        (folder / gate).touch()
    hanging = str(Path(__file__).with_name("hanging.py"))
    with Forked([hanging, str(folder), "run", *arguments], {**os.environ, **environment}, folder / "log") as process:
        yield Running(process, folder)


def articles(count: int, seed: int = 1) -> list[Sent]:
    """Short articles; ids of another seed are others."""
    return [
        as_sent({**article, "id": f"{seed}-{number}"}) for number, article in enumerate(short_articles(count, seed))
    ]


@pytest.mark.broker
def test_under_load_it_becomes_ready_and_counts_what_was_published(topics: Topics, tmp_path: Path) -> None:
    """It is ready once it is a member; then its metrics are correct."""
    bad = [Sent(b"no id", b'{"body": "x"}'), Sent(b"no JSON", b"x")]
    publish(topics.bootstrap_servers, topics.input, [*articles(300), *bad, Sent(b"gone", None)])
    with running(tmp_path, topics.environment, gates=["loading"]) as worker:
        until(lambda: worker.probes() == (200, 503, 503), "it is alive and not ready", START_S)
        until(lambda: worker.get("/startupz").text == "loading the model\n", "it loads its model", START_S)
        assert 1 == worker.metric("enricher_state", enricher_state="starting")
        worker.gate("loading").unlink()
        until(lambda: worker.probes() == (200, 200, 200), "it is ready", START_S)
        until(lambda: worker.metric("enricher_articles_total") == 303, "all is published", WORK_S)
        assert 300 == worker.metric("enricher_articles_total", enricher_outcome="enriched")
        assert 1 == worker.metric("enricher_articles_total", enricher_outcome="tombstone")
        assert 2 == worker.metric("enricher_dead_letters_total", enricher_stage="decode")
        assert 303 == worker.metric("enricher_article_latency_seconds_count")
        assert 1 == worker.metric("enricher_state", enricher_state="working")
        status = worker.get("/status.json").json
        assert (303, "worker-0", 4) == (
            status["totals"]["published"],
            status["worker"]["instance"],
            status["assigned"],
        )
        worker.process.terminate()
        assert worker.process.wait(PATIENCE_S) == 0


@pytest.mark.broker
def test_while_it_drains_it_is_alive_and_not_ready(topics: Topics, tmp_path: Path) -> None:
    """After SIGTERM it is not ready at once, and it finishes what is on the device."""
    environment = {**topics.environment, "ENRICHER_WORKER__DRAIN_TIMEOUT_S": "120"}
    publish(topics.bootstrap_servers, topics.input, articles(20))
    with running(tmp_path, environment, gates=["running"]) as worker:
        until(lambda: worker.metric("enricher_batches_total") > 0, "a batch is on the device", START_S)
        assert (200, 200, 200) == worker.probes()
        worker.process.send_signal(signal.SIGTERM)
        until(lambda: worker.probes() == (200, 503, 200), "it drains")
        assert "draining\n" == worker.get("/readyz").text
        worker.gate("running").unlink()
        assert worker.process.wait(PATIENCE_S) == 0


@pytest.mark.broker
def test_a_broker_that_goes_away_turns_no_probe_and_raises_the_age(
    topics: Topics, proxy: Proxy, tmp_path: Path
) -> None:
    """A restart would not help, so the probes stay green and the age grows. When the broker is back, work continues."""
    publish(topics.bootstrap_servers, topics.input, articles(50))
    environment = topics.environment | {"ENRICHER_KAFKA__BOOTSTRAP_SERVERS": proxy.addresses}
    with running(tmp_path, environment) as worker:
        until(lambda: worker.metric("enricher_articles_total") == 50, "all is published", WORK_S)
        until(lambda: worker.metric("enricher_oldest_age_seconds") == 0, "nothing is left to do")
        proxy.apply(away := Cut(Match()))
        seen: set[tuple[int, ...]] = set()
        ages: list[float] = []

        def old() -> bool:
            seen.add(worker.probes())
            ages.append(worker.metric("enricher_oldest_age_seconds"))
            return ages[-1] > 2 and len(set(ages)) > 3  # it grew step by step

        until(old, "the age grows", WORK_S)
        assert {(200, 200, 200)} == seen
        proxy.lift(away)
        publish(topics.bootstrap_servers, topics.input, articles(20, seed=2))
        until(lambda: worker.metric("enricher_articles_total") == 70, "it goes on", WORK_S)
        until(lambda: worker.metric("enricher_oldest_age_seconds") == 0, "nothing is left to do", WORK_S)
        assert (200, 200, 200) == worker.probes()


QUICK = {"ENRICHER_KAFKA__REQUEST_TIMEOUT_S": "5", "ENRICHER_WORKER__STALL_TIMEOUT_S": "6"}
IMPATIENT_S = 3.0
"""The timeout of a probe, as in the chart."""


@pytest.mark.broker
def test_processes_have_their_own_pages_and_a_frozen_one_is_seen(topics: Topics, tmp_path: Path) -> None:
    """The parent is ready when all are. If one is frozen, it is neither alive nor ready within the timeout of a probe.

    Kubernetes then restarts the container; that nothing is lost by it, `kafka/test_processes.py` shows.
    """
    port = free_row(5)
    ports = {"ENRICHER_HEALTH__PORT": str(port), "ENRICHER_HEALTH__PROBE_PORT": str(port + 2)}
    publish(topics.bootstrap_servers, topics.input, articles(200))

    def probes() -> tuple[int, ...]:
        return tuple(get(port + 2, path, timeout_s=IMPATIENT_S).status for path in PROBES)

    with running(tmp_path, topics.environment | ports, "--processes", "2", gates=["loading"]) as parent:
        loading = "process 0: loading the model; process 1: loading the model\n"
        until(lambda: get(port + 2, "/startupz").text == loading, "each has checked its topics and loads", START_S)
        parent.gate("loading").unlink()
        until(lambda: probes() == (200, 200, 200), "all are ready", START_S)
        until(lambda: is_all_committed(topics), "all is published", WORK_S)
        for number in (0, 1):
            own = get(port + number, "/status.json").json
            assert (f"worker-0-{number}", True) == (own["worker"]["instance"], own["totals"]["published"] > 0)
        frozen, _ = psutil.Process(parent.process.pid).children()
        suspend(frozen)
        until(lambda: probes() == (503, 503, 503), "it is seen")
        assert re.search(r"process \d: no answer", get(port + 2, "/livez").text)
        frozen.kill()
        assert 137 == parent.process.wait(PATIENCE_S)


@pytest.mark.broker
def test_a_worker_whose_c_code_holds_the_lock_ends_by_itself(topics: Topics, tmp_path: Path) -> None:
    """It can answer no probe; a timer in C ends it, with the stacks of all threads."""
    publish(topics.bootstrap_servers, topics.input, articles(5))
    with running(tmp_path, {**topics.environment, **QUICK}, gates=["holding"]) as worker:
        assert 1 == worker.process.wait(PATIENCE_S)
    log = (tmp_path / "log").read_text()
    assert "Timeout (0:00:" in log
    assert "in _hold_the_lock" in log, "the stack of the thread that holds the lock"


def test_a_start_that_hangs_ends_within_its_bound(tmp_path: Path) -> None:
    """A model's folder on a disk that does not answer, for example: the watchdog ends the process."""
    with running(tmp_path, {}, gates=["loading", "hasty"]) as worker:
        assert 7 == worker.process.wait(PATIENCE_S)
    assert "no progress in 'starting' for 4 s" in (tmp_path / "log").read_text()
