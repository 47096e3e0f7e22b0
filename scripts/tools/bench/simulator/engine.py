"""How long a batch takes, and which threads are free. A run costs its fixed part and each token that the device computes."""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from enricher.records import Batch


@dataclass(frozen=True, slots=True)
class EngineModel:
    """`thread_tokens_per_s`: of each thread. `padding_cost`: of one padding token, as a share of a real one.

    1 where windows are padded, 0 where they are packed. The packed variant pads inside attention only: a tenth of the work.
    """

    concurrency: int
    thread_tokens_per_s: float
    run_overhead_tokens: int
    padding_cost: float = 1.0

    def computed_tokens(self, batch: Batch) -> float:
        """The real tokens, and what padding costs."""
        return batch.real_tokens + self.padding_cost * (batch.padded_tokens - batch.real_tokens)

    def batch_s(self, batch: Batch) -> float:
        """How long a thread is busy with it."""
        return (self.run_overhead_tokens + self.computed_tokens(batch)) / self.thread_tokens_per_s

    def longest_batch_s(self, max_batch_tokens: int) -> float:
        """How long it can be busy with one batch."""
        return (self.run_overhead_tokens + max_batch_tokens) / self.thread_tokens_per_s

    def capacity_tokens_per_s(self, max_batch_tokens: int) -> float:
        """Real tokens per second of all threads with full batches and no padding: no order gets more."""
        return self.concurrency * max_batch_tokens / self.longest_batch_s(max_batch_tokens)


class WorkerPool:
    """Which are busy until when."""

    def __init__(self, model: EngineModel) -> None:
        self._model = model
        self._free_s = [0.0] * model.concurrency

    @property
    def next_free_s(self) -> float:
        """When the first is free, in the past if one is now."""
        return self._free_s[0]

    def start(self, batch: Batch, now_s: float) -> float:
        """Run it on a free thread; when it ends."""
        assert self.next_free_s <= now_s, "no thread is free"
        end_s = now_s + self._model.batch_s(batch)
        heapq.heapreplace(self._free_s, end_s)
        return end_s
