"""The health of an indexer: its counts, the instruments that export them, its probes, and its status as JSON.

The loop writes the counts; other threads read them. `enricher/worker/telemetry/instruments.py` has the instruments of the
worker.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any

import orjson

from enricher.worker.health.routes import Health, ProbeResult, Reply, Route, page_routes
from enricher.worker.health.worker_health import Waits, why_stuck
from enricher.worker.records import Partition
from enricher.worker.runtime.watchdog import Watched
from enricher.worker.stats import LATENCIES_S, SECONDS, Histogram, WorkerState
from enricher.worker.telemetry.instruments import (
    DESTINATION,
    ERROR_TYPE,
    OUTCOME,
    PARTITION,
    PROCESS_INSTRUMENTS,
    STATE,
    Instrument,
    Kind,
    by,
    by_partition,
    one,
    states_of,
)
from enricher.worker.telemetry.observed import WorkerFacts
from enricher.worker.telemetry.prometheus import PLAIN, encode_families, families_of

INDEX_OUTCOMES = ("written", "deleted", "older", "dead_letter")
"""The outcomes of a record. `older`: the index already has a newer version."""
RETRY_REASONS = ("busy", "too_large", "no_answer", "failed")
"""Why documents are sent again. `busy` is HTTP 429, `too_large` 413."""


@dataclass(slots=True)
class IndexCounts:
    """Counts since the start."""

    read: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    retries: Counter[str] = field(default_factory=Counter)
    """Documents sent again, by reason."""
    rebalances: int = 0
    bulk_s: Histogram = field(default_factory=lambda: Histogram(SECONDS))
    latency_s: Histogram = field(default_factory=lambda: Histogram(LATENCIES_S))
    working_s: float = 0.0
    """Seconds from the first record read to the last commit."""
    _began_s: float | None = None

    def count_read(self, records: int) -> None:
        """Count records that were read."""
        self._began_s = self._began_s or time.monotonic()
        self.read += records

    def note_commit(self) -> None:
        """Note that everything read so far is committed."""
        if self._began_s:
            self.working_s = time.monotonic() - self._began_s


@dataclass(frozen=True, slots=True)
class IndexSnapshot:
    """The state of an indexer. `lags`: offsets between the committed one and the end, where both are known."""

    state: WorkerState
    partitions: int
    lags: Mapping[Partition, int]
    documents: int
    """Documents read and not yet done."""
    size_bytes: int
    """Memory of these documents and their records."""
    most_documents: int
    """The limit of documents in one bulk request now."""
    stuck_s: float
    """Seconds for which the index has taken no document; 0 while it takes some."""
    stuck_reason: str
    """Why documents were last sent again; empty if none were."""


@dataclass(frozen=True, slots=True)
class ObservedIndexer:
    """Everything that instruments read of an indexer. `snapshot` does not block; any thread may call it."""

    worker: WorkerFacts
    counts: IndexCounts
    snapshot: Callable[[], IndexSnapshot]


_counter, _gauge, _histogram = (partial(Instrument[ObservedIndexer], kind) for kind in Kind)

INDEX_INSTRUMENTS: tuple[Instrument[ObservedIndexer], ...] = (
    _counter("enricher.index.records", "{record}", "Records read from the output topic by an indexer.",
             lambda seen: one(seen.counts.read)),
    _counter("enricher.index.documents", "{document}",
             "Records whose outcome is known: `written` or `deleted` in the index, `older` than what it has, or a dead "
             "letter of the indexer.",
             lambda seen: by({each: seen.counts.outcomes[each] for each in INDEX_OUTCOMES}), (OUTCOME,)),
    _counter("enricher.index.retries", "{document}",
             "Documents sent again: the index was `busy` (HTTP 429), the request `too_large` (413), there was `no_answer`, "
             "or it `failed`.",
             lambda seen: by({each: seen.counts.retries[each] for each in RETRY_REASONS}), (ERROR_TYPE,)),
    _histogram("enricher.index.bulk.duration", "s", "Duration of a bulk request that was answered.",
               lambda seen: one(seen.counts.bulk_s)),
    _histogram("enricher.index.latency", "s", "Time from a record's timestamp in the output topic to the index's answer.",
               lambda seen: one(seen.counts.latency_s)),
    _gauge("enricher.index.bulk.limit", "{document}", "Most documents that a bulk request may have now.",
           lambda seen: one(seen.snapshot().most_documents)),
    _gauge("enricher.index.in_flight.documents", "{document}", "Records read and not yet done.",
           lambda seen: one(seen.snapshot().documents)),
    _gauge("enricher.index.in_flight.size", "By", "Memory of these records.",
           lambda seen: one(seen.snapshot().size_bytes)),
    _gauge("enricher.index.stuck", "s",
           "Time for which the index has taken none of the documents in hand; 0 while it does. At `index.give_up_s` the "
           "process ends.", lambda seen: one(seen.snapshot().stuck_s)),
    _counter("enricher.index.rebalances", "{rebalance}", "Rebalances in which partitions came to the indexer or left it.",
             lambda seen: one(seen.counts.rebalances)),
    _gauge("enricher.index.partitions", "{partition}", "Partitions of the output topic assigned to the indexer.",
           lambda seen: one(seen.snapshot().partitions)),
    _gauge("enricher.index.partition.lag", "{record}",
           "Offsets between the committed one and the end of a partition of the output topic.",
           lambda seen: by_partition(seen.snapshot().lags), (DESTINATION, PARTITION)),
    _gauge("enricher.index.state", "1", "1 for the current state of the indexer, 0 for the others.",
           lambda seen: states_of(seen.snapshot().state), (STATE,)),
)  # fmt: skip

EXPORTED: tuple[Instrument[ObservedIndexer], ...] = (*INDEX_INSTRUMENTS, *PROCESS_INSTRUMENTS)
"""The instruments that an indexer exports, with those that every process has."""


READY_WITHIN_S = 15.0
"""An indexer whose documents the index has not taken for this long is not ready."""
_NO_THREADS = Waits(0.0, 0.0, 1.0)


class IndexHealth(Health):
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
        """The status, which has names and numbers only. There are no charts, so `since` does not matter."""
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
