"""An indexer's health: probes, metrics and its status as JSON, from the start of the process to its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from http import HTTPStatus
from typing import Any

import orjson

from enricher.indexing.index_instruments import EXPORTED, ObservedIndexer
from enricher.worker.health.routes import ProbeResult, Reply, Route, Starting, page_routes
from enricher.worker.health.worker_health import Waits, why_stuck
from enricher.worker.runtime.watchdog import Watched
from enricher.worker.stats.snapshot import WorkerState
from enricher.worker.telemetry.observed import WorkerFacts
from enricher.worker.telemetry.prometheus import PLAIN, encode_families, families_of

READY_WITHIN_S = 15.0
"""An indexer whose documents the index has not taken for this long is not ready."""
_NO_THREADS = Waits(0.0, 0.0, 1.0)


class IndexHealth(Starting):
    """The health of an indexer, also before it is built."""

    def __init__(self, facts: WorkerFacts, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__("checking topics and rights")
        self._facts = facts
        self._clock = clock
        self._began_s = clock()
        self._seen: ObservedIndexer | None = None
        self._watched: Callable[[], Watched | None] = lambda: None

    def show(self, seen: ObservedIndexer, watched: Callable[[], Watched | None]) -> None:
        """Answer from a built indexer from now on."""
        self._seen, self._watched = seen, watched

    @property
    def is_built(self) -> bool:
        """Whether there is an indexer."""
        return self._seen is not None

    def liveness(self) -> ProbeResult:
        """Not ok if only a new process can help, which it cannot while the index does not answer."""
        reason = why_stuck(self._watched(), _NO_THREADS)
        return ProbeResult(ok=reason is None, reason=reason or ("the loop turns" if self._seen else self._step))

    def readiness(self) -> ProbeResult:
        """Ok if the indexer is a member of the group, and the index takes its documents."""
        if not self._seen:
            return ProbeResult(ok=False, reason=self._step)
        now = self._seen.snapshot()
        if now.state in {WorkerState.DRAINING, WorkerState.STARTING, WorkerState.JOINING}:
            return ProbeResult(ok=False, reason=now.state.value)
        if now.stuck_s > READY_WITHIN_S:
            return ProbeResult(ok=False, reason=f"the search index has taken nothing for {now.stuck_s:.0f} s")
        return ProbeResult(ok=True, reason=now.state.value)

    def metrics(self, accept: str) -> tuple[bytes, str]:
        """The exposition, which is empty before the indexer is built, and its content type."""
        if not self._seen:
            return encode_families([], accept or PLAIN)
        return encode_families(families_of(EXPORTED, self._seen), accept)

    def status(self, since: float = 0.0) -> dict[str, Any]:
        """Names and numbers only. There are no charts, so `since` does not matter."""
        del since
        seen = self._seen
        status: dict[str, Any] = {
            "uptime_s": self._clock() - self._began_s,
            "live": asdict(self.liveness()),
            "ready": asdict(self.readiness()),
            "worker": asdict(self._facts),
        }
        if seen:
            now = asdict(seen.snapshot())
            lags = [{"topic": each.topic, "number": each.number, "lag": lag} for each, lag in now.pop("lags").items()]
            status |= {**now, "state": now["state"].value, "lags": lags, "outcomes": dict(seen.counts.outcomes)}
        return status

    def pages(self) -> Mapping[str, Route]:
        """Status and metrics as a worker has them, with the status as JSON instead of the page."""

        def page(_request: object) -> Reply:
            return Reply(HTTPStatus.OK, "application/json", orjson.dumps(self.status(), option=orjson.OPT_INDENT_2))

        return {**page_routes(self), "/": page}
