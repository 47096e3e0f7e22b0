"""Several worker processes under one parent: the parent's side (`supervisor`), the child's (`link`), what is between."""

from enricher.processes.link import ParentLink
from enricher.processes.restarts import RestartLimits
from enricher.processes.states import ProcessState
from enricher.processes.supervisor import Supervisor, SupervisorLimits

__all__ = ["ParentLink", "ProcessState", "RestartLimits", "Supervisor", "SupervisorLimits"]
