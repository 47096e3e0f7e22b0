"""Orders that the scheduler is compared with: batches in order of arrival, and plain length buckets."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence

from enricher.worker.records import Batch, Window
from enricher.worker.rules.batch_rules import BatchRules


class _Queue:
    """A FIFO queue that forms batches in order of arrival."""

    def __init__(self, rules: BatchRules) -> None:
        self._rules = rules
        self._windows: deque[Window] = deque()

    def add(self, window: Window) -> None:
        self._windows.append(window)

    @property
    def head_s(self) -> float | None:
        """Arrival time of the oldest window."""
        return self._windows[0].arrived_s if self._windows else None

    def fitting(self) -> int:
        """How many windows from the front fit into a batch, padded to the longest of them; at least one."""
        count = longest = 0
        for window in self._windows:
            longest = max(longest, len(window.ids))
            if count and (count + 1) * longest > self._rules.max_batch_tokens:
                break
            count += 1
        return count

    def due_s(self) -> float | None:
        """When the next batch is due: at once if more waits than fits into it."""
        if not self._windows:
            return None
        head_s = self._windows[0].arrived_s
        return head_s if self.fitting() < len(self._windows) else head_s + self._rules.max_wait_s

    def take(self) -> Batch:
        return Batch(tuple(self._windows.popleft() for _ in range(self.fitting())))


class PlainBuckets:
    """Independent FIFO buckets by length; among the due ones the bucket with the oldest window runs first."""

    def __init__(self, rules: BatchRules) -> None:
        self._rules = rules
        self._queues = [_Queue(rules) for _ in rules.bucket_edges]
        self.queued_tokens = 0

    @property
    def max_batch_tokens(self) -> int:
        return self._rules.max_batch_tokens

    def add(self, windows: Sequence[Window]) -> None:
        last = len(self._queues) - 1
        for window in windows:
            self._queues[min(bisect_left(self._rules.bucket_edges, len(window.ids)), last)].add(window)
            self.queued_tokens += len(window.ids)

    def next_due_s(self) -> float | None:
        return min((due_s for queue in self._queues if (due_s := queue.due_s()) is not None), default=None)

    def next_batch(self, now_s: float, *, idle_threads: int = 0, load: float = 1.0) -> Batch | None:
        """The batch to run next; none goes early."""
        del idle_threads, load
        due = [queue for queue in self._queues if (due_s := queue.due_s()) is not None and due_s <= now_s]
        if not due:
            return None
        batch = min(due, key=lambda queue: queue.head_s or 0.0).take()
        self.queued_tokens -= batch.real_tokens
        return batch


class AsTheyCome(PlainBuckets):
    """One FIFO queue for all lengths."""

    def __init__(self, rules: BatchRules) -> None:
        super().__init__(BatchRules((rules.bucket_edges[-1],), rules.max_batch_tokens, rules.max_wait_s, 0))
