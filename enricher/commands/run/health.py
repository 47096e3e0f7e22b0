"""`enricher run` and its health: who answers on which port, and what of the worker it sees."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version

from prometheus_client.core import GaugeMetricFamily, Metric

from enricher.health import PARENT_PAGE, Facts, HealthServer, ProcessesHealth, Route, View, Waits, WorkerHealth, routes
from enricher.processes import ParentLink, Supervisor
from enricher.runtime.watchdog import Watchdog
from enricher.settings import Settings
from enricher.settings.operating import HealthSettings
from enricher.stats.snapshot import WorkerState
from enricher.telemetry.exposition import exposed
from enricher.telemetry.instruments import INSTRUMENTS
from enricher.telemetry.observed import Observed
from enricher.telemetry.prometheus import exposition, label_name, prometheus_name
from enricher.telemetry.readings import STATE
from enricher.worker.loop import Worker

log = logging.getLogger("enricher.commands.run")

_LOOPBACK = "127.0.0.1"
_OLDEST_AGE = "enricher.oldest.age"
_REBALANCE_S = 10.0  # from the end of a session to the last partition's new owner; members hear of it within a second


@contextmanager
def worker_health(settings: Settings, link: ParentLink | None = None) -> Iterator[WorkerHealth]:
    """A worker's health, served from before it has loaded its model until it has ended.

    With a link to a parent, which has the port of the settings, it is served to that parent alone.
    """
    health = WorkerHealth(_facts(settings), starting_metrics=starting_metrics)
    server = _to_parent(link, health) if link and settings.health.enabled else _served(settings.health, routes(health))
    with server:
        threading.Thread(target=health.keep_looking, name="health-samples", daemon=True).start()
        try:
            yield health
        finally:
            health.close()


@contextmanager
def parent_health(settings: Settings, parent: Supervisor) -> Iterator[None]:
    """The health of all processes of a parent, on one port."""
    health = ProcessesHealth(
        _facts(settings),
        parent,
        handed_out_s=settings.kafka.session_timeout_s + _REBALANCE_S,
        oldest_metric=_oldest,
    )
    with _served(settings.health, {**routes(health, PARENT_PAGE), **health.routes()}):
        if settings.health.enabled:
            threading.Thread(target=health.keep_looking, name="health-owners", daemon=True).start()
        try:
            yield
        finally:
            health.close()


def view_of(worker: Worker, watchdog: Watchdog, seen: Observed) -> View:
    """What health sees of a worker."""
    pacing, recovery = worker.pacing, worker.recovery
    return View(
        model=seen.model,
        counters=seen.counters,
        snapshot=seen.snapshot,
        watched=watchdog.watched,
        waits=lambda: Waits(pacing.engine_waits_s, pacing.tokenizer_waits_s, pacing.engine_timeout_s),
        recoveries=lambda: tuple(recovery.noted),
        metrics=lambda accept: exposition(seen, accept),
        gpus=seen.gpus,
    )


def starting_metrics(accept: str) -> tuple[bytes, str]:
    """What is exposed before there is a worker: its state."""
    return exposed(_starting, accept)


def _oldest(age_s: float) -> str:
    """What nobody has yet is as old as this."""
    instrument = next(instrument for instrument in INSTRUMENTS if instrument.name == _OLDEST_AGE)

    def families() -> Iterator[Metric]:
        family = GaugeMetricFamily(prometheus_name(instrument), instrument.description)
        family.add_metric([], age_s)
        yield family

    return exposed(families, "text/plain")[0].decode()


def _starting() -> Iterator[Metric]:
    state = next(instrument for instrument in INSTRUMENTS if instrument.name == STATE)
    family = GaugeMetricFamily(prometheus_name(state), state.description, labels=[label_name(STATE)])
    for each in WorkerState:
        family.add_metric([each.value], float(each is WorkerState.STARTING))
    yield family


@contextmanager
def _served(settings: HealthSettings, paths: Mapping[str, Route]) -> Iterator[None]:
    if not settings.enabled:
        yield
        return
    with HealthServer(paths, host=settings.host, port=settings.port) as server:
        log.info("status page %s, probes /livez /readyz /startupz, metrics /metrics", server.url)
        yield


@contextmanager
def _to_parent(link: ParentLink, health: WorkerHealth) -> Iterator[None]:
    with HealthServer(routes(health), host=_LOOPBACK, port=0) as server:
        link.serves(server.port)
        yield


def _facts(settings: Settings) -> Facts:
    kafka = settings.kafka
    return Facts(
        instance=kafka.instance,
        group=kafka.group_id,
        input_topic=kafka.input_topic,
        output_topic=kafka.output_topic,
        dead_letter_topic=kafka.dead_letter_topic,
        version=version("enricher"),
    )
