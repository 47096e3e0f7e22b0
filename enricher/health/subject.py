"""One worker's health, from the first line of its start to its end: what the probes are told, what is shown."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from enricher.health.charts import COLUMNS, rows
from enricher.health.liveness import stuck
from enricher.health.probes import Verdict
from enricher.health.samples import EVERY_S, History, look
from enricher.health.status import status_of
from enricher.health.view import Facts, View
from enricher.stats.snapshot import Snapshot, WorkerState

LOADING = "loading the model"


class WorkerHealth:
    """Answers for a worker that may not be there yet. `starting_metrics` is what is exposed until it is."""

    def __init__(
        self,
        facts: Facts,
        *,
        starting_metrics: Callable[[str], tuple[bytes, str]],
        clock: Callable[[], float] = time.monotonic,
        epoch_clock: Callable[[], float] = time.time,
    ) -> None:
        self._facts = facts
        self._starting_metrics = starting_metrics
        self._clock, self._epoch_clock = clock, epoch_clock
        self._began_s = clock()
        self._step = LOADING
        self._view: View | None = None
        self._history = History()
        self._over = threading.Event()

    # ---- told by the command

    def starts(self, step: str) -> None:
        """What the start is at, for people."""
        self._step = step

    def shows(self, view: View) -> None:
        """The worker is built: from now on it speaks for itself."""
        self._view = view
        self.sample()

    def keep_looking(self) -> None:
        """Take a look for the charts every now and then, until `close`: for a thread of its own."""
        while not self._over.wait(EVERY_S):
            self.sample()

    def close(self) -> None:
        """Look no more."""
        self._over.set()

    def sample(self) -> None:
        """Take one look for the charts."""
        if self._view:
            self._history.add(look(self._view.counters, self._view.snapshot(), self._clock(), self._epoch_clock()))

    # ---- asked by the probes

    def live(self) -> Verdict:
        """False where only a new process can help. A start has no bound of its own: the startup probe's is one."""
        if not self._view:
            return Verdict(ok=True, reason=self._step)
        reason = stuck(self._view.watched(), self._view.waits())
        return Verdict(ok=reason is None, reason=reason or "the loop turns")

    def ready(self) -> Verdict:
        """Model warm, provider proven (or it would not have loaded), group joined, not about to end."""
        if not self._view:
            return Verdict(ok=False, reason=self._step)
        return readiness(self._view.snapshot())

    def started(self) -> Verdict:
        """Model loaded and warm, worker built."""
        return Verdict(ok=True, reason="started") if self._view else Verdict(ok=False, reason=self._step)

    # ---- asked by people and scrapers

    def metrics(self, accept: str) -> tuple[bytes, str]:
        """The exposition and its content type."""
        return self._view.metrics(accept) if self._view else self._starting_metrics(accept)

    def status(self, since: float = 0.0) -> dict[str, Any]:
        """Everything for the page, with the charts' rows after `since` (Unix time)."""
        epoch_s, view = self._epoch_clock(), self._view
        snapshot = view.snapshot() if view else None
        status: dict[str, Any] = {
            "now": epoch_s,
            "uptime_s": self._clock() - self._began_s,
            "state": (snapshot.state if snapshot else WorkerState.STARTING).value,
            "live": asdict(self.live()),
            "ready": asdict(self.ready()),
            "worker": asdict(self._facts),
            "history": {"columns": COLUMNS, "rows": rows(self._history.samples(), since)},
        }
        if view and snapshot:
            now = look(view.counters, snapshot, self._clock(), epoch_s)
            status |= status_of(view, snapshot, now, self._history.span(now))
        return status


def readiness(snapshot: Snapshot) -> Verdict:
    """Of a worker that is built. A broker that is away makes nobody unready: it is away for the next one too."""
    if snapshot.state is WorkerState.DRAINING:
        return Verdict(ok=False, reason="draining")
    if not snapshot.connection.joined:
        return Verdict(ok=False, reason="not yet a member of the group")
    return Verdict(ok=True, reason=snapshot.state.value)
