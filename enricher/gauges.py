"""Looks at the rooms and says how full they are. Asked from other threads, so it only reads, and asks nobody to wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

from enricher.core.offsets import OffsetTracker
from enricher.intake import Intake
from enricher.levels import Connection, Levels, WorkerState
from enricher.ports import Lanes, Source
from enricher.records import Batch, BatchResult


@dataclass(slots=True)
class Gauges:
    """What can be seen of a worker from outside. The loop notes the few things here that nobody else knows."""

    source: Source
    intake: Intake
    engine: Lanes[Batch, BatchResult]
    tracker: OffsetTracker
    clock: Callable[[], float]
    epoch_clock: Callable[[], float] = field(default=time.time)
    turned_s: float = 0.0
    """When the loop last began a turn."""
    held_back: int = 0
    """As it was after the last release."""
    recovering: bool = False
    stopping: bool = False

    def read(self) -> Levels:
        """Everything, about now."""
        scheduler, tracker, engine = self.intake.scheduler, self.tracker, self.engine
        connection = self.source.connection()
        return Levels(
            state=self._state(connection),
            connection=connection,
            partitions=len(tracker.partitions),
            oldest_age_s=self._oldest_age_s(connection),
            in_flight_articles=tracker.in_flight,
            in_flight_bytes=tracker.in_flight_bytes,
            held_back_articles=self.held_back,
            queued_windows=scheduler.queued_windows,
            queued_tokens=scheduler.queued_tokens,
            budget_tokens=scheduler.max_batch_tokens,
            lanes=engine.threads,
            engine_busy_s=engine.busy_s,
            engine_starved_s=engine.starved_s,
            # A recovery is one long turn, whose attempts the watchdog bounds one by one.
            turn_age_s=0.0 if self.recovering else max(0.0, self.clock() - self.turned_s),
        )

    def _state(self, connection: Connection) -> WorkerState:
        if self.stopping:
            return WorkerState.DRAINING
        if self.recovering:
            return WorkerState.RECOVERING
        return WorkerState.WORKING if connection.joined else WorkerState.JOINING

    def _oldest_age_s(self, connection: Connection) -> float:
        behind = {partition for partition, lag in connection.lags.items() if lag > 0}
        oldest_s = self.tracker.oldest_timestamp_s(behind)
        known_s = 0.0 if oldest_s is None else self.epoch_clock() - oldest_s
        return max(0.0, known_s, connection.away_s)
