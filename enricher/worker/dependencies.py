"""What the loop is given; `app/` makes it. Nothing is decided here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from enricher.core.heads import Head
from enricher.core.offsets import OffsetTracker
from enricher.records import Batch, BatchResult
from enricher.runtime.wakeup import Wakeup
from enricher.runtime.watchdog import Guard
from enricher.stats.counters import Counters
from enricher.worker.intake import Intake
from enricher.worker.pool import WorkerPool
from enricher.worker.ports import Scheduler, Sink, Source, Tracing
from enricher.worker.recovery import Recovery


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
    """Of each pass."""
    recovery: Recovery
    tracing: Tracing
    counters: Counters
    clock: Callable[[], float]
    wakeup: Wakeup
    guard: Guard
    tracker: OffsetTracker = field(default_factory=OffsetTracker)
