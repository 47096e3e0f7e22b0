"""One worker's health, from the start of the process to its end."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from enricher.worker.health.charts import COLUMNS, rows
from enricher.worker.health.liveness import why_stuck
from enricher.worker.health.routes import ProbeResult, Starting
from enricher.worker.health.samples import EVERY_S, KEPT_S, OVER_S, Sample, interval_to, take_sample
from enricher.worker.health.status import View, state_of, status_of
from enricher.worker.stats.snapshot import WorkerState
from enricher.worker.telemetry.observed import WorkerFacts
from enricher.worker.telemetry.prometheus import exposition, starting_exposition

LOADING = "loading the model"


class WorkerHealth(Starting):
    """Answers for one worker, also before it is built."""

    def __init__(
        self,
        facts: WorkerFacts,
        *,
        clock: Callable[[], float] = time.monotonic,
        epoch_clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(LOADING)
        self._facts = facts
        self._clock, self._epoch_clock = clock, epoch_clock
        self._began_s = clock()
        self._view: View | None = None
        self._samples: deque[Sample] = deque(maxlen=int(KEPT_S / EVERY_S) + 1)

    # ---- called by the command

    def show(self, view: View) -> None:
        """Answer from this worker from now on: it is built."""
        self._view = view
        self.sample()

    @property
    def is_built(self) -> bool:
        """Whether the worker is built."""
        return self._view is not None

    def sample(self) -> None:
        """Take one sample for the charts; called every `EVERY_S` seconds."""
        if self._view:
            seen = self._view.observed
            self._samples.append(take_sample(seen.counters, seen.snapshot(), self._clock(), self._epoch_clock()))

    # ---- called by the server

    def liveness(self) -> ProbeResult:
        """Not ok if only a new process can help. Always ok during the start, which the startup probe bounds."""
        if not self._view:
            return ProbeResult(ok=True, reason=self._step)
        reason = why_stuck(self._view.watched(), self._view.waits())
        return ProbeResult(ok=reason is None, reason=reason or "the loop turns")

    def readiness(self) -> ProbeResult:
        """Ok if the model has run, the worker is a member of the group, and it is not draining.

        It stays ready while the brokers are away, because they are away for other workers too.
        """
        if not self._view:
            return ProbeResult(ok=False, reason=self._step)
        snapshot = self._view.observed.snapshot()
        if snapshot.state is WorkerState.DRAINING:
            return ProbeResult(ok=False, reason="draining")
        if not snapshot.connection.joined:
            return ProbeResult(ok=False, reason="not yet a member of the group")
        return ProbeResult(ok=True, reason=snapshot.state.value)

    def metrics(self, accept: str) -> tuple[bytes, str]:
        """The metrics in a format that `accept` allows, and its content type."""
        return exposition(self._view.observed, accept) if self._view else starting_exposition(accept)

    def status(self, since: float = 0.0) -> dict[str, Any]:
        """Everything that the page shows, with the charts' rows after `since` (Unix time)."""
        epoch_s, view, samples = self._epoch_clock(), self._view, tuple(self._samples)
        snapshot = view.observed.snapshot() if view else None
        status: dict[str, Any] = {
            "now": epoch_s,
            "uptime_s": self._clock() - self._began_s,
            "state": state_of(snapshot),
            "live": asdict(self.liveness()),
            "ready": asdict(self.readiness()),
            "worker": asdict(self._facts),
            "history": {"columns": COLUMNS, "rows": rows(samples, since)},
        }
        if view and snapshot:
            now = take_sample(view.observed.counters, snapshot, self._clock(), epoch_s)
            status |= status_of(view, snapshot, now, interval_to(samples, now, OVER_S))
        return status
