"""What a worker says of itself over HTTP: probes, metrics, and the status page for people.

One port, a few daemon threads, nothing to change from outside. It reads counts, snapshot and the watchdog, and knows
neither Kafka nor models nor how metrics are written.
"""

from enricher.health.liveness import Waits
from enricher.health.page import PARENT_PAGE
from enricher.health.probes import Probed, Verdict
from enricher.health.processes import ProcessesHealth
from enricher.health.replies import Route
from enricher.health.routes import Door, routes
from enricher.health.server import HealthServer
from enricher.health.subject import LOADING, WorkerHealth
from enricher.health.view import Facts, View

__all__ = [
    "LOADING",
    "PARENT_PAGE",
    "Door",
    "Facts",
    "HealthServer",
    "Probed",
    "ProcessesHealth",
    "Route",
    "Verdict",
    "View",
    "Waits",
    "WorkerHealth",
    "routes",
]
