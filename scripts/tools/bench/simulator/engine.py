"""A model of the engine: how long a batch takes, a fixed part plus each computed token, and which threads are free."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from enricher.worker.records import Batch


@dataclass(frozen=True, slots=True)
class EngineModel:
    """`thread_tokens_per_s`: rate of one thread. `padding_cost`: cost of a padding token, as a share of a real one.

    The cost is 1 for padded variants, 0 for packed ones, and about a tenth if only attention pads.
    """

    concurrency: int
    thread_tokens_per_s: float
    run_overhead_tokens: int
    padding_cost: float = 1.0

    def computed_tokens(self, batch: Batch) -> float:
        """Real tokens plus the cost of padding, in tokens."""
        return batch.real_tokens + self.padding_cost * (batch.padded_tokens - batch.real_tokens)

    def batch_s(self, batch: Batch) -> float:
        """How long the batch occupies a thread."""
        return (self.run_overhead_tokens + self.computed_tokens(batch)) / self.thread_tokens_per_s

    def longest_batch_s(self, max_batch_tokens: int) -> float:
        """How long the largest batch occupies a thread."""
        return (self.run_overhead_tokens + max_batch_tokens) / self.thread_tokens_per_s

    def capacity_tokens_per_s(self, max_batch_tokens: int) -> float:
        """Real tokens per second of all threads with full batches and no padding: an upper bound for any order."""
        return self.concurrency * max_batch_tokens / self.longest_batch_s(max_batch_tokens)


class WorkerPool:
    """Simulated threads, and until when each is busy."""

    def __init__(self, model: EngineModel) -> None:
        self._model = model
        self._free_s = [0.0] * model.concurrency

    @property
    def next_free_s(self) -> float:
        """When the next thread is free; in the past if one is free now."""
        return self._free_s[0]

    def running(self, now_s: float) -> int:
        """How many threads have a batch that ends later than now."""
        return sum(free_s > now_s for free_s in self._free_s)

    def next_end_s(self, now_s: float) -> float | None:
        """When the next of the running batches ends; None if none is running."""
        return min((free_s for free_s in self._free_s if free_s > now_s), default=None)

    def start(self, batch: Batch, now_s: float) -> float:
        """Start the batch on a free thread; returns its end time."""
        assert self.next_free_s <= now_s, "no thread is free"
        end_s = now_s + self._model.batch_s(batch)
        heapq.heapreplace(self._free_s, end_s)
        return end_s
