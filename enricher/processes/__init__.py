"""Several worker processes under one parent: `supervisor` and `child` run in the parent, `link` in each child."""

from enricher.processes.link import ParentLink
from enricher.processes.restarts import RestartLimits
from enricher.processes.states import ProcessState
from enricher.processes.supervisor import SilenceLimits, Supervisor

__all__ = ["ParentLink", "ProcessState", "RestartLimits", "SilenceLimits", "Supervisor"]
