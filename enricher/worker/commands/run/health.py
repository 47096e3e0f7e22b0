"""`enricher run` and its health: what is served, and on which port."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from enricher.worker.build.observation import worker_facts
from enricher.worker.commands.progress import repeating
from enricher.worker.health.liveness import Waits
from enricher.worker.health.page import PARENT_PAGE
from enricher.worker.health.processes import ProcessesHealth
from enricher.worker.health.routes import Route, page_routes, probe_routes
from enricher.worker.health.samples import EVERY_S
from enricher.worker.health.server import HealthServer
from enricher.worker.health.status import View
from enricher.worker.health.worker_health import WorkerHealth
from enricher.worker.loop.loop import Worker
from enricher.worker.processes import ParentLink, Supervisor
from enricher.worker.runtime.watchdog import Watchdog
from enricher.worker.settings import Settings
from enricher.worker.settings.worker import HealthSettings
from enricher.worker.telemetry.observed import Observed

log = logging.getLogger("enricher.worker.commands.run")

_LOOPBACK = "127.0.0.1"
USUAL_PROBE_PORT = 8180
"""Not next to the usual port of the page: several processes of one machine have that port and the following ones."""
_REBALANCE_S = 10.0
"""From the session timeout until every partition has a new owner; members hear of it within a second."""


@contextmanager
def worker_health(settings: Settings, link: ParentLink | None = None) -> Iterator[WorkerHealth]:
    """Serve a worker's health while the body runs, which begins before the model is loaded.

    `link`: the worker has a parent, which serves the ports of the settings; the worker's own port is for the parent only.
    """
    health = WorkerHealth(worker_facts(settings))
    with (
        serve_health(page_routes(health), probe_routes(health), settings.health, link),
        repeating(health.sample, EVERY_S),
    ):
        yield health


@contextmanager
def parent_health(settings: Settings, parent: Supervisor) -> Iterator[None]:
    """Serve the health of all processes of a parent on its two ports."""
    handed_out_s = settings.kafka.session_timeout_s + _REBALANCE_S
    health = ProcessesHealth(worker_facts(settings), parent, handed_out_s=handed_out_s)
    with (
        serve_health({**page_routes(health, PARENT_PAGE), **health.routes()}, probe_routes(health), settings.health),
        repeating(health.note_owners, EVERY_S),
    ):
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
def serve_health(
    pages: Mapping[str, Route], probes: Mapping[str, Route], settings: HealthSettings, link: ParentLink | None = None
) -> Iterator[None]:
    """Serve pages and probes on the ports of the settings, if that is enabled, while the body runs.

    `link`: the process has a parent, which serves those ports and asks for nothing but pages.
    """
    if not settings.enabled:
        yield
    elif link:
        with HealthServer(pages, host=_LOOPBACK, port=0) as server:
            link.report_port(server.port)
            yield
    else:
        with (
            HealthServer(pages, host=settings.host, port=settings.port) as page,
            probe_server(probes, settings) as probe,
        ):
            log.info("status page %s, metrics at /metrics; probes %slivez, /readyz and /startupz", page.url, probe.url)
            yield


def probe_server(probes: Mapping[str, Route], settings: HealthSettings) -> HealthServer:
    """The server of the probes. Raises SettingsError if it cannot listen on the address."""
    return HealthServer(
        probes, host=settings.host, port=settings.probe_port, usual_port=USUAL_PROBE_PORT, setting="health.probe_port"
    )
