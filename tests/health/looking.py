"""Shared by the health tests: a worker of the fake world as health sees it, and an HTTP client."""

from __future__ import annotations

import http.client
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
from loop.fake_clock import FakeClock
from loop.world import Process
from support.patience import PATIENCE_S, wait_until

from enricher.worker.health.routes import Route, page_routes, probe_routes
from enricher.worker.health.server import HealthServer
from enricher.worker.health.worker_health import View, Waits, WorkerHealth
from enricher.worker.telemetry.observed import GpuUse, ModelFacts, Observed, WorkerFacts

FACTS = WorkerFacts("worker-0", "enricher", "articles", "entities", "articles.dead-letters", "1.2.3")
EPOCH_S = 1_700_000_000.0
LOCALHOST = "127.0.0.1"


MODEL = ModelFacts(
    name="newswire-minilm",
    digest="8f192d9fa757ed4e252af8528649dac5e2e14cf934dbe2064d5c748ad0059551",
    precision="fp32",
    provider="CPUExecutionProvider",
    device="cpu",
)
GPU = GpuUse("NVIDIA H200", utilization=0.9, used_bytes=3 * 2**30, total_bytes=141 * 2**30)


def view_of(process: Process, *, gpus: tuple[GpuUse, ...] = ()) -> View:
    """A worker of the fake world, as health sees it."""
    pacing, recovery = process.worker.pacing, process.worker.recovery
    return View(
        observed=Observed(FACTS, MODEL, process.counters, process.worker.snapshots.read, gpus=lambda: gpus),
        watched=lambda: None,
        waits=lambda: Waits(pacing.engine_waits_s, pacing.tokenizer_waits_s, pacing.engine_timeout_s),
        recoveries=lambda: tuple(recovery.noted),
    )


def health_of(clock: FakeClock) -> WorkerHealth:
    """Health of a worker that is not built yet, on the clock of its world."""
    return WorkerHealth(FACTS, clock=clock, epoch_clock=lambda: EPOCH_S + clock())


@dataclass(frozen=True, slots=True)
class Answer:
    """The response."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()

    @property
    def json(self) -> Any:  # noqa: ANN401  whatever it is
        """The body as JSON."""
        return orjson.loads(self.body)


def get(port: int, path: str, *, method: str = "GET", timeout_s: float = 30.0) -> Answer:
    """Send one request. Raises OSError if there is no answer."""
    connection = http.client.HTTPConnection(LOCALHOST, port, timeout=timeout_s)
    try:
        connection.request(method, path)
        response = connection.getresponse()
        return Answer(response.status, response.read(), dict(response.getheaders()))
    finally:
        connection.close()


@contextmanager
def served(health: WorkerHealth) -> Iterator[int]:
    """Serve this health, pages and probes, on one free port."""
    with serving({**page_routes(health), **probe_routes(health)}) as port:
        yield port


@contextmanager
def serving(paths: Mapping[str, Route]) -> Iterator[int]:
    """Serve these paths on a free port."""
    with HealthServer(paths, host=LOCALHOST, port=0, usual_port=0, setting="health.port") as server:
        yield server.port


def until(holds: Callable[[], bool], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Check five times per second until the condition holds. A server that does not answer counts as False."""
    wait_until(lambda: _holds(holds), timeout_s, what, 0.2)


def _holds(holds: Callable[[], bool]) -> bool:
    try:
        return holds()
    except OSError:
        return False
