"""ArrivalScheduler: batches for graph variants that do not pad, so that windows of any lengths go together at no cost.

Windows go in the order of arrival, as many as fit. A batch is ready when it is full, or when the oldest window has waited
`max_wait_s` since its own arrival; for an idle thread, early, by `BatchRules`; batching.py has the scheduler for graph
variants that pad.

Nothing here runs a model or reads a clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from enricher.worker.records import Batch, Window
from enricher.worker.rules.batching import BatchRules


class ArrivalScheduler:
    """Holds windows until they fill a batch or have waited long enough. The budget counts real tokens.

    Has the interface of LengthBucketScheduler; ignores the rule `bucket_edges`.
    """

    def __init__(self, rules: BatchRules) -> None:
        self._rules = rules
        self.max_batch_tokens = rules.max_batch_tokens
        """The current budget of a batch."""
        self._windows: deque[Window] = deque()
        self.queued_tokens = 0

    @property
    def queued_windows(self) -> int:
        """How many windows wait."""
        return len(self._windows)

    def add(self, windows: Sequence[Window]) -> None:
        """Queue windows; their waiting time counts from `arrived_s`. Cheapest in the order of arrival."""
        last_s = self._windows[-1].arrived_s if self._windows else None
        self._windows.extend(windows)
        self.queued_tokens += sum(len(window.ids) for window in windows)
        if last_s is not None and any(window.arrived_s < last_s for window in windows):
            self._windows = deque(sorted(self._windows, key=lambda window: window.arrived_s))

    def next_due_s(self) -> float | None:
        """When the next batch is due if nothing more arrives; in the past if it is ready now, None if nothing waits."""
        if not self._windows:
            return None
        oldest_s = self._windows[0].arrived_s
        return oldest_s if self._full else oldest_s + self._rules.max_wait_s

    def next_batch(self, now_s: float, *, idle_threads: int = 0, load: float = 1.0) -> Batch | None:
        """The batch to run now; None if it is better to wait.

        `idle_threads`: how many threads of the device have nothing to do; `load`: how busy the worker is, 0 to 1.
        """
        due_s = self.next_due_s()
        if due_s is None:
            return None
        budget = self.max_batch_tokens
        if now_s < due_s:
            tokens = self._rules.early_tokens(self.queued_tokens, idle_threads, load)
            if tokens is None:
                return None
            budget = min(tokens, budget)
        batch = Batch(tuple(self._fitting(budget)))
        self.queued_tokens -= batch.real_tokens
        return batch

    def drop_forgotten(self) -> None:
        """Remove the windows of forgotten tickets."""
        self._windows = deque(window for window in self._windows if window.ticket.live)
        self.queued_tokens = sum(len(window.ids) for window in self._windows)

    def limit_budget(self, max_batch_tokens: int) -> None:
        """Limit later batches to so many tokens, at most those of the rules."""
        assert max_batch_tokens >= 1, "a budget is at least one token"
        self.max_batch_tokens = min(max_batch_tokens, self._rules.max_batch_tokens)

    def tokens_of(self, batch: Batch) -> int:
        """The tokens that a batch takes of the budget."""
        return batch.real_tokens

    @property
    def _full(self) -> bool:
        return self.queued_tokens >= self.max_batch_tokens

    def _fitting(self, budget: int) -> Iterator[Window]:
        """Remove windows from the front, as many as fit into `budget`, at least one."""
        free = budget - len(self._windows[0].ids)
        yield self._windows.popleft()
        while self._windows and (free := free - len(self._windows[0].ids)) >= 0:
            yield self._windows.popleft()
