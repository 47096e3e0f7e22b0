"""The health of `enricher run`: the routes that it serves, and on which ports."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from enricher.worker.commands.run.share import Share
from enricher.worker.commands.running import repeating
from enricher.worker.health.routes import Route, common_probes, page_routes, probe_routes
from enricher.worker.health.samples import EVERY_S
from enricher.worker.health.server import HealthServer, connectable
from enricher.worker.health.worker_health import View, Waits, WorkerHealth
from enricher.worker.loop.loop import Worker
from enricher.worker.processes import Processes
from enricher.worker.runtime.watchdog import Watchdog
from enricher.worker.settings import Settings
from enricher.worker.settings.worker import USUAL_PORT, USUAL_PROBE_PORT, HealthSettings
from enricher.worker.telemetry.observed import Observed
from enricher.worker.wiring.workers import worker_facts

log = logging.getLogger("enricher.worker.commands.run")


@contextmanager
def worker_health(settings: Settings) -> Iterator[WorkerHealth]:
    """Serve a worker's health while the body runs, which begins before the model is loaded."""
    health = WorkerHealth(worker_facts(settings))
    with serve_health(page_routes(health), probe_routes(health), settings.health), repeating(health.sample, EVERY_S):
        yield health


@contextmanager
def parent_health(settings: Settings, count: int, processes: Processes) -> Iterator[None]:
    """Serve the common probes of `count` processes; each serves its own, and its page and metrics."""
    shares = [Share(index, count).of_health(settings.health) for index in range(count)]

    def ports() -> Mapping[int, int]:
        return {index: port for index in processes.running() if (port := shares[index].probe_port)}

    if not settings.health.enabled:
        yield
        return
    with _probe_server(common_probes(connectable(settings.health.host), ports), settings.health) as server:
        log.info("probes of all processes: %slivez, /readyz and /startupz", server.url)
        yield


def view_of(worker: Worker, watchdog: Watchdog, seen: Observed) -> View:
    """A worker as its health reads it."""
    pacing, recovery = worker.pacing, worker.recovery
    return View(
        observed=seen,
        watched=watchdog.call_in_progress,
        waits=lambda: Waits(pacing.engine_waits_s, pacing.tokenizer_waits_s, pacing.engine_timeout_s),
        recoveries=lambda: tuple(recovery.noted),
    )


@contextmanager
def serve_health(pages: Mapping[str, Route], probes: Mapping[str, Route], settings: HealthSettings) -> Iterator[None]:
    """Serve pages and probes on the ports of the settings, if that is enabled, while the body runs."""
    if not settings.enabled:
        yield
        return
    with (
        HealthServer(
            pages, host=settings.host, port=settings.port, usual_port=USUAL_PORT, setting="health.port"
        ) as page,
        _probe_server(probes, settings) as probe,
    ):
        log.info("status page %s, metrics at /metrics; probes %slivez, /readyz and /startupz", page.url, probe.url)
        yield


def _probe_server(probes: Mapping[str, Route], settings: HealthSettings) -> HealthServer:
    return HealthServer(
        probes, host=settings.host, port=settings.probe_port, usual_port=USUAL_PROBE_PORT, setting="health.probe_port"
    )
