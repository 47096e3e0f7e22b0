"""PassScheduler: one scheduler for a worker with several passes, each of which has windows, batches and a budget.

Of the passes with a batch ready, the one whose oldest window arrived first goes first. So no pass starves: its oldest
window gets older until it is the oldest of all. Nothing here runs a model or reads a clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import inf

from enricher.worker.records import Batch, Window
from enricher.worker.rules.batching import LengthBucketScheduler
from enricher.worker.rules.packing import ArrivalScheduler

PassQueue = LengthBucketScheduler | ArrivalScheduler


class PassScheduler:
    """Has the interface of the schedulers of single passes. `queues`: those, by pass."""

    def __init__(self, queues: Sequence[PassQueue]) -> None:
        assert queues, "a worker has a pass"
        self._queues = queues

    @property
    def queued_windows(self) -> int:
        """How many windows wait, for all passes."""
        return sum(queue.queued_windows for queue in self._queues)

    @property
    def queued_tokens(self) -> int:
        """The sum of their lengths."""
        return sum(queue.queued_tokens for queue in self._queues)

    @property
    def max_batch_tokens(self) -> int:
        """The largest budget of a pass."""
        return max(queue.max_batch_tokens for queue in self._queues)

    def of_pass(self, index: int) -> PassQueue:
        """The scheduler of one pass."""
        return self._queues[index]

    def add(self, windows: Sequence[Window]) -> None:
        """Queue windows of any passes; their waiting time counts from `arrived_s`."""
        for index, group in groupby(windows, key=lambda window: window.part.pass_index):
            self._queues[index].add([*group])

    def next_due_s(self) -> float | None:
        """When the next batch of any pass is due; None if nothing waits."""
        due_s = [each_s for queue in self._queues if (each_s := queue.next_due_s()) is not None]
        return min(due_s, default=None)

    def next_batch(self, now_s: float, *, idle_threads: int = 0, load: float = 1.0) -> Batch | None:
        """The batch to run now, of one pass; None if it is better to wait.

        `idle_threads`: how many threads of the device have nothing to do; `load`: how busy the worker is, 0 to 1.
        """
        for queue in sorted(self._queues, key=_oldest_s):
            if batch := queue.next_batch(now_s, idle_threads=idle_threads, load=load):
                return batch
        return None

    def drop_forgotten(self) -> None:
        """Remove the windows of forgotten tickets."""
        for queue in self._queues:
            queue.drop_forgotten()


def _oldest_s(queue: PassQueue) -> float:
    oldest_s = queue.oldest_s
    return inf if oldest_s is None else oldest_s
