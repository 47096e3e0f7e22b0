"""Several worker processes under one parent: `supervisor` and `child` run in the parent, `link` in each child."""

from enricher.worker.processes.link import ParentLink
from enricher.worker.processes.restarts import RestartLimits
from enricher.worker.processes.states import ProcessState
from enricher.worker.processes.supervisor import SilenceLimits, Supervisor

__all__ = ["ParentLink", "ProcessState", "RestartLimits", "SilenceLimits", "Supervisor"]
