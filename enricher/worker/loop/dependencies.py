"""The parts that the loop is given; `worker/build/` makes them. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from enricher.worker.loop.intake import Intake
from enricher.worker.loop.pool import WorkerPool
from enricher.worker.loop.ports import Scheduler, Sink, Source, Tracing
from enricher.worker.loop.recovery import Recovery
from enricher.worker.records import Batch, BatchResult
from enricher.worker.rules.heads import Head
from enricher.worker.rules.offsets import OffsetTracker
from enricher.worker.runtime.wakeup import Wakeup
from enricher.worker.runtime.watchdog import Guard
from enricher.worker.stats.counters import Counters


@dataclass(frozen=True, slots=True)
class Dependencies:
    """Everything the loop works with. It closes the source, the sink, the intake and the engine."""

    source: Source
    sink: Sink
    intake: Intake
    scheduler: Scheduler
    engine: WorkerPool[Batch, BatchResult]
    padded_tokens: Callable[[Batch], int]
    """How many tokens the device computes for a batch; this depends on the graph variant."""
    heads: Sequence[Sequence[Head]]
    """The heads of each pass."""
    recovery: Recovery
    tracing: Tracing
    counters: Counters
    clock: Callable[[], float]
    wakeup: Wakeup
    guard: Guard
    tracker: OffsetTracker = field(default_factory=OffsetTracker)
