"""ArrivalScheduler: batches for a variant that pads nothing, where any lengths go together at no cost.

Windows go in the order in which they came, as many as fit. A batch is ready when it is full, or when the oldest window
has waited `max_wait_s` since its own arrival. Where padding is computed, batching.py's scheduler is the one.

Decides only; nothing here runs a model or reads a clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace

from enricher.core.batching import BatchRules
from enricher.records import Batch, Window


class ArrivalScheduler:
    """Holds windows until they fill a batch or have waited long enough. The budget counts real tokens: there are no others.

    Of the rules, `bucket_edges` and `run_overhead_tokens` say nothing here. The interface is LengthBucketScheduler's.
    """

    def __init__(self, rules: BatchRules) -> None:
        self._rules = rules
        self._windows: deque[Window] = deque()
        self.queued_tokens = 0

    @property
    def queued_windows(self) -> int:
        """How many wait."""
        return len(self._windows)

    @property
    def max_batch_tokens(self) -> int:
        """The budget of a batch, as it is now."""
        return self._rules.max_batch_tokens

    def add(self, windows: Sequence[Window]) -> None:
        """Queue windows; their waiting time counts from their own `arrived_s`. Cheapest in the order of arrival."""
        last_s = self._windows[-1].arrived_s if self._windows else None
        self._windows.extend(windows)
        self.queued_tokens += sum(len(window.ids) for window in windows)
        if last_s is not None and any(window.arrived_s < last_s for window in windows):
            self._windows = deque(sorted(self._windows, key=lambda window: window.arrived_s))

    def next_due_s(self) -> float | None:
        """When the next batch is due if nothing more arrives: the past if one is ready now, None if nothing waits."""
        if not self._windows:
            return None
        oldest_s = self._windows[0].arrived_s
        return oldest_s if self._full else oldest_s + self._rules.max_wait_s

    def next_batch(self, now_s: float, *, flush: bool = False) -> Batch | None:
        """The batch to run next, or None while it is better to wait. `flush`: whatever waits is due now."""
        due_s = self.next_due_s()
        if due_s is None or (now_s < due_s and not flush):
            return None
        batch = Batch(tuple(self._fitting()))
        self.queued_tokens -= batch.real_tokens
        return batch

    def drop_forgotten(self) -> int:
        """Remove the windows whose ticket was forgotten; returns how many."""
        before = len(self._windows)
        self._windows = deque(window for window in self._windows if window.ticket.live)
        self.queued_tokens = sum(len(window.ids) for window in self._windows)
        return before - len(self._windows)

    def lower_budget(self, max_batch_tokens: int) -> None:
        """From now on no batch has more tokens than this. A higher number than the present one changes nothing."""
        assert max_batch_tokens >= 1, "a budget is at least a token"
        self._rules = replace(self._rules, max_batch_tokens=min(max_batch_tokens, self._rules.max_batch_tokens))

    @property
    def _full(self) -> bool:
        return self.queued_tokens >= self._rules.max_batch_tokens

    def _fitting(self) -> Iterator[Window]:
        """From the front as many as fit, one at least."""
        room = self._rules.max_batch_tokens - len(self._windows[0].ids)
        yield self._windows.popleft()
        while self._windows and (room := room - len(self._windows[0].ids)) >= 0:
            yield self._windows.popleft()
