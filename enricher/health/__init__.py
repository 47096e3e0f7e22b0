"""The worker's health over HTTP: probes, metrics, and the status page.

Read-only: nothing can be changed through the port. This package reads counters, snapshots and the watchdog; it knows neither
Kafka nor the model.
"""

from enricher.health.liveness import Waits
from enricher.health.page import PARENT_PAGE
from enricher.health.processes import ProcessesHealth
from enricher.health.routes import ProbeResult, Route, routes
from enricher.health.server import HealthServer
from enricher.health.status import View
from enricher.health.subject import LOADING, WorkerHealth

__all__ = [
    "LOADING",
    "PARENT_PAGE",
    "HealthServer",
    "ProbeResult",
    "ProcessesHealth",
    "Route",
    "View",
    "Waits",
    "WorkerHealth",
    "routes",
]
