"""The start of a process, as its health tells it: the step that is under way, until everything is built."""

from __future__ import annotations

from abc import ABC, abstractmethod

from enricher.worker.health.routes import ProbeResult


class Starting(ABC):
    """The part of a process's health that answers before there is anything to look at. `step`: the first one."""

    def __init__(self, step: str) -> None:
        self._step = step

    @property
    @abstractmethod
    def is_built(self) -> bool:
        """Whether the process can be looked at."""

    def starts(self, step: str) -> None:
        """Set which step of the start is under way: the reason that probes give."""
        self._step = step

    def started(self) -> ProbeResult:
        """Ok once everything is built and connected."""
        return ProbeResult(ok=True, reason="started") if self.is_built else ProbeResult(ok=False, reason=self._step)
