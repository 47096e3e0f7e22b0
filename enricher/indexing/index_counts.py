"""The counts of an indexer, and its state at one moment. Its loop writes them; other threads read them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from enricher.worker.records import Partition
from enricher.worker.stats.counters import LATENCIES_S, SECONDS, Histogram
from enricher.worker.stats.snapshot import WorkerState

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
    working_cpu_s: float = 0.0
    """Processor time of the process during `working_s`."""
    _began: tuple[float, float] | None = None

    def count_read(self, records: int) -> None:
        """Count records that were read."""
        self._began = self._began or (time.monotonic(), time.process_time())
        self.read += records

    def note_commit(self) -> None:
        """Note that everything read so far is committed."""
        if self._began:
            self.working_s = time.monotonic() - self._began[0]
            self.working_cpu_s = time.process_time() - self._began[1]

    def as_dict(self) -> dict[str, Any]:
        """The counts, for the summary of a run."""
        times = {"working_s": self.working_s, "working_cpu_s": self.working_cpu_s}
        return {"read": self.read, **self.outcomes, "sent_again": self.retries.total(), **times}


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
    """The most documents that a bulk request may have now."""
    stuck_s: float
    """Seconds for which the index has taken none of them; 0 while it takes some."""
    stuck_reason: str
    """Why documents were sent again last; empty if none were."""
