"""Reads the state of the worker. Called from other threads, so it only reads and never blocks."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from enricher.worker.loop.intake import Intake
from enricher.worker.loop.pacing import Pacing
from enricher.worker.loop.pool import WorkerPool
from enricher.worker.loop.ports import Scheduler, Source
from enricher.worker.records import Batch, BatchResult, Partition, Ticket
from enricher.worker.rules.offsets import OffsetTracker
from enricher.worker.stats import Connection, Snapshot, WorkerState


@dataclass(frozen=True, slots=True)
class _Trouble:
    """The start of the recovery in progress, and the age of the oldest unprocessed record then."""

    since_s: float
    age_s: float


@dataclass(slots=True)
class SnapshotReader:
    """Makes snapshots. The loop sets the fields with defaults, which only it knows."""

    source: Source
    scheduler: Scheduler
    engine: WorkerPool[Batch, BatchResult]
    tracker: OffsetTracker
    clock: Callable[[], float]
    intake: Intake
    pacing: Pacing
    turned_s: float = 0.0
    """When the last turn of the loop began."""
    epoch_clock: Callable[[], float] = field(default=time.time)
    held_back: int = 0
    """Articles that the last release held back."""
    stopping: bool = False
    limits_used: Mapping[str, float] = field(default_factory=dict)
    """How much of each limit of dead letters is used up, 0 to 1."""
    publishing: Sequence[Ticket] = ()
    """Tickets of the transaction in progress: released, but not yet committed."""
    _trouble: _Trouble | None = None

    @contextmanager
    def recovering(self) -> Iterator[None]:
        """Wrap a recovery; enter before tickets are forgotten, because they stay unprocessed and get older."""
        self._trouble = _Trouble(self.clock(), self.read().oldest_age_s)
        try:
            yield
        finally:
            self._trouble, self.publishing = None, ()

    def read(self) -> Snapshot:
        """The state now, read while the loop goes on, so not at one instant."""
        scheduler, tracker, engine = self.scheduler, self.tracker, self.engine
        connection = self.source.connection()
        lags = self._lags(connection)
        return Snapshot(
            state=self._state(connection),
            connection=connection,
            partitions=len(tracker.partitions),
            lags=lags,
            unstable={p: found for p, found in connection.unstable.items() if p in tracker.partitions},
            oldest_age_s=self._oldest_age_s(connection, lags),
            in_flight_articles=tracker.in_flight,
            in_flight_bytes=tracker.in_flight_bytes,
            held_back_articles=self.held_back,
            queued_windows=scheduler.queued_windows,
            queued_tokens=scheduler.queued_tokens,
            budget_tokens=scheduler.max_batch_tokens,
            concurrency=engine.threads,
            engine_busy_s=engine.busy_s,
            engine_starved_s=engine.starved_s,
            # A recovery is one long turn; the watchdog bounds each of its attempts.
            turn_age_s=0.0 if self._trouble else max(0.0, self.clock() - self.turned_s),
            schemas=self.intake.schemas.state() if self.intake.schemas else None,
            waiting_articles=self.intake.waiting_articles,
            waiting=self.intake.waiting_tickets(),
            dead_letter_limits=self.limits_used,
        )

    def _state(self, connection: Connection) -> WorkerState:
        if self.stopping:
            return WorkerState.DRAINING
        if self._trouble:
            return WorkerState.RECOVERING
        return WorkerState.WORKING if connection.joined else WorkerState.JOINING

    def _lags(self, connection: Connection) -> Mapping[Partition, int]:
        ends = connection.ends
        # A partition without a record so far is still at its start.
        standing = {**connection.starts, **self.tracker.committable()}
        return {partition: max(0, ends[partition] - at) for partition, at in standing.items() if partition in ends}

    def _oldest_age_s(self, connection: Connection, lags: Mapping[Partition, int]) -> float:
        oldest_s = self.tracker.oldest_timestamp_s({partition for partition, lag in lags.items() if lag > 0})
        stamps_s = [oldest_s, *(ticket.raw.timestamp_s for ticket in self.publishing)]
        known_s = self.epoch_clock() - min((stamp_s for stamp_s in stamps_s if stamp_s is not None), default=math.inf)
        untimed_s = self.tracker.oldest_untimed_s()
        here_s = 0.0 if untimed_s is None else self.clock() - untimed_s
        trouble = self._trouble
        left_s = 0.0 if trouble is None else trouble.age_s + self.clock() - trouble.since_s
        return max(0.0, known_s, here_s, connection.away_s, connection.silent_s, left_s)
