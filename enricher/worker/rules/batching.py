"""The bounds of a batch (`BatchRules`), which windows go through the model together, and when (`LengthBucketScheduler`).

*When*: windows of similar length share a bucket. A batch is ready when a bucket fills one (one more window would not fit),
or when the oldest window has waited `max_wait_s` since its own arrival (the timer never restarts). Windows that are due go
first, the oldest one in front. A device thread that is idle gets a batch early, as soon as enough tokens wait to be worth
a run: next to none at low load, when idle time is free, and a full batch near capacity.

*Which*: a batch is built around the oldest window that is ready, from the nearest lengths, shorter or longer, whichever
costs less padding, as long as they fit and padding them costs less than leaving them to a later run. So buckets decide
when a batch goes, never which windows are padded together.

packing.py has the scheduler for graph variants that do not pad. Where nothing waits and all windows are known, for the gate
and for calibration, `by_length` and `in_order` fill batches. Nothing here runs a model or reads a clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from math import ceil, inf
from operator import attrgetter

from enricher.worker.records import Batch, Window
from enricher.worker.rules.load import share_at_load

EARLY_POWER = 4
"""How steeply the cost of early batches falls with the load. In simulations with the same cost at half load, results are
fresher at a quarter of that load than with 2 or 3."""
CHEAP_PADDING = 1 / 8
"""Padding up to this share of a window is always accepted to let it go now. With less, batches under light load are small;
with more, padding costs what they save. In simulations between 0.1 and 0.25 the total hardly differs."""
_by_arrival = attrgetter("arrived_s")


@dataclass(frozen=True, slots=True)
class BatchRules:
    """The bounds of a batch.

    `bucket_edges`: the longest window of each bucket, increasing; longer windows go into the last bucket.
    `max_batch_tokens`: padded tokens of a batch; only a single window that is longer exceeds it. `max_wait_s`: how long a
    window may wait for other windows of its batch. `run_overhead_tokens`: the fixed cost of a run, in tokens that could be
    computed in that time. A batch includes windows of other lengths while padding them costs less than their share of a
    later run. `early_overhead`: how large the fixed cost of an early batch may be at half load, as a share of its tokens; it
    is scaled to the load (`share_at_load`). 0: no batch goes early.
    """

    bucket_edges: tuple[int, ...]
    max_batch_tokens: int
    max_wait_s: float
    run_overhead_tokens: int
    early_overhead: float = 0.0

    def __post_init__(self) -> None:
        assert self.bucket_edges, "at least one bucket"
        assert list(self.bucket_edges) == sorted(set(self.bucket_edges)), "edges increase"

    def early_tokens(self, queued_tokens: int, idle_threads: int, load: float) -> int | None:
        """The most tokens of an early batch; None if no batch may go early. `load`: how busy the worker is, 0 to 1.

        What waits is divided among the idle threads, as far as each part is worth a run. Undivided, it may fill a batch:
        otherwise its padding would leave some of it behind.
        """
        allowed = (
            share_at_load(self.early_overhead, load, EARLY_POWER) if self.early_overhead and idle_threads > 0 else 0.0
        )
        if not allowed or queued_tokens < (least := self.run_overhead_tokens / allowed):
            return None
        parts = min(idle_threads, int(queued_tokens / max(least, 1)))
        return ceil(queued_tokens / parts) if parts > 1 else self.max_batch_tokens


class LengthBucketScheduler:
    """Holds windows until they fill a batch or have waited long enough."""

    def __init__(self, rules: BatchRules) -> None:
        self._rules = rules
        self.max_batch_tokens = rules.max_batch_tokens
        """The current budget of a batch."""
        self._clear()

    def _clear(self) -> None:
        self._buckets = _buckets(self._rules.bucket_edges)
        self._lines: dict[int, _Line] = {}
        # Bit n is set if windows of n tokens wait, so that finding the next length is a few machine instructions.
        self._lengths = 0
        # All windows by arrival; `_oldest` removes taken ones when they reach the front.
        self._order: deque[Window] = deque()
        self._newest_s = -inf
        self.queued_windows = 0
        self.queued_tokens = 0

    def add(self, windows: Sequence[Window]) -> None:
        """Queue windows; their waiting time counts from `arrived_s`. Cheapest in the order of arrival."""
        lines, order, newest_s = self._lines, self._order, self._newest_s
        tokens, in_order = 0, True
        for window in windows:
            length = len(window.ids)
            line = lines.get(length) or self._line(length)
            line.append(window)
            line.bucket.queued += 1
            order.append(window)
            tokens += length
            in_order = in_order and window.arrived_s >= newest_s
            newest_s = window.arrived_s
        self._newest_s = newest_s
        self.queued_windows += len(windows)
        self.queued_tokens += tokens
        if not in_order:
            self._rebuild(self._waiting())

    def next_due_s(self) -> float | None:
        """When the next batch is due if nothing more arrives; in the past if it is ready now, None if nothing waits."""
        oldest = self._oldest()
        if oldest is None:
            return None
        return oldest.arrived_s if any(map(self._fills, self._buckets)) else self._due_s(oldest)

    def next_batch(self, now_s: float, *, idle_threads: int = 0, load: float = 1.0) -> Batch | None:
        """The batch to run now; None if it is better to wait.

        If a window is due, the first window of the batch is the oldest one that waits. `idle_threads`: how many threads of
        the device have nothing to do; `load`: how busy the worker is, 0 to 1.
        """
        oldest = self._oldest()
        if oldest is None:
            return None
        budget = self.max_batch_tokens
        if now_s < self._due_s(oldest):
            if full := self._oldest_of_full_buckets():
                oldest = full
            elif tokens := self._rules.early_tokens(self.queued_tokens, idle_threads, load):
                budget = min(tokens, budget)
            else:
                return None
        return self._batch_around(len(oldest.ids), budget)

    def drop_forgotten(self) -> None:
        """Remove the windows of forgotten tickets."""
        self._rebuild([window for window in self._waiting() if window.ticket.live])

    def limit_budget(self, max_batch_tokens: int) -> None:
        """Limit later batches to so many padded tokens, at most those of the rules."""
        assert max_batch_tokens >= 1, "a budget is at least one token"
        self.max_batch_tokens = min(max_batch_tokens, self._rules.max_batch_tokens)

    def tokens_of(self, batch: Batch) -> int:
        """The tokens that a batch takes of the budget."""
        return batch.padded_tokens

    # ---- when

    def _due_s(self, window: Window) -> float:
        # `next_due_s` and `next_batch` must round alike, or the loop would wake up too early and find nothing due.
        return window.arrived_s + self._rules.max_wait_s

    def _oldest(self) -> Window | None:
        """The window that has waited longest; None if none waits."""
        order, lines = self._order, self._lines
        while order:
            window = order[0]
            line = lines[len(window.ids)]
            # All older windows are gone, so if this one still waits, it is the head of its line.
            if line and line[0] is window:
                return window
            order.popleft()
        return None

    def _oldest_of_full_buckets(self) -> Window | None:
        full = [bucket for bucket in self._buckets if self._fills(bucket)]
        if not full:
            return None
        heads = (line[0] for line in self._lines.values() if line and line.bucket in full)
        return min(heads, key=_by_arrival)

    def _fills(self, bucket: _Bucket) -> bool:
        """True if another window would not fit into a batch of this bucket, so that waiting for one is useless."""
        longest = (self._lengths & bucket.lengths).bit_length() - 1
        return (bucket.queued + 1) * longest > self.max_batch_tokens

    # ---- which

    def _batch_around(self, length: int, budget: int) -> Batch:
        """Windows of this length, then of the nearest lengths, while they fit into `budget` and are worth their padding."""
        windows = self._take(length, max(1, budget // length))
        worth, longest = self._worth(), length
        shorter, longer = self._lengths & ((1 << length) - 1), self._lengths >> (length + 1) << (length + 1)
        while (free := budget // longest - len(windows)) > 0:
            below, above = shorter.bit_length() - 1, (longer & -longer).bit_length() - 1
            cost_below = (longest - below) / below if shorter else inf
            cost_above = self._cost_of_longer(above, longest, len(windows), budget) if longer else inf
            if min(cost_below, cost_above) > worth:
                break
            if cost_below <= cost_above:
                windows += self._take(below, free)
                shorter ^= 1 << below
            else:
                windows += self._take(above, budget // above - len(windows))
                longer ^= 1 << above
                longest = above
        return Batch(tuple(windows))

    def _worth(self) -> float:
        """Padding that may be computed per token of a window, so that it goes now.

        In a later run it would pay its share of the overhead, among all windows that wait or a full batch of them.
        """
        sharing = max(1, min(self.max_batch_tokens, self.queued_tokens))
        return self._rules.run_overhead_tokens / sharing + CHEAP_PADDING

    def _cost_of_longer(self, length: int, longest: int, taken: int, budget: int) -> float:
        """Padding per token gained, if the windows taken so far are padded to this longer length."""
        coming = min(budget // length - taken, len(self._lines[length]))
        return taken * (length - longest) / (coming * length) if coming > 0 else inf

    def _take(self, length: int, at_most: int) -> list[Window]:
        """Remove and return the oldest windows of one length."""
        line = self._lines[length]
        if len(line) <= at_most:
            taken = list(line)
            line.clear()
            self._lengths ^= 1 << length
        else:
            taken = [line.popleft() for _ in range(at_most)]
        line.bucket.queued -= len(taken)
        self.queued_windows -= len(taken)
        self.queued_tokens -= len(taken) * length
        return taken

    def _line(self, length: int) -> _Line:
        """The empty line of this length, marked as having a window, which the caller adds."""
        self._lengths |= 1 << length
        line = self._lines.get(length)
        if line is None:
            edges = self._rules.bucket_edges
            line = self._lines[length] = _Line(self._buckets[min(bisect_left(edges, length), len(edges) - 1)])
        return line

    def _waiting(self) -> list[Window]:
        return sorted(chain.from_iterable(self._lines.values()), key=_by_arrival)

    def _rebuild(self, windows: Sequence[Window]) -> None:
        self._clear()
        self.add(windows)


class _Line(deque[Window]):
    """Waiting windows of exactly one length, oldest first."""

    __slots__ = ("bucket",)

    def __init__(self, bucket: _Bucket) -> None:
        super().__init__()
        self.bucket = bucket


@dataclass(slots=True, eq=False)
class _Bucket:
    """The number of waiting windows of similar length. `lengths`: bit n is set if windows of n tokens belong here."""

    lengths: int
    queued: int = 0


def _buckets(edges: Sequence[int]) -> list[_Bucket]:
    """One bucket per edge; the last one also takes longer windows."""
    bounds = [1, *(edge + 1 for edge in edges[:-1])]
    closed = [_Bucket((1 << stop) - (1 << start)) for start, stop in pairwise(bounds)]
    return [*closed, _Bucket(-1 << bounds[-1])]


def by_length(windows: Sequence[Window], max_tokens: int) -> list[list[Window]]:
    """Windows of similar length together, up to `max_tokens` with padding, like a worker under load."""
    return in_order(sorted(windows, key=lambda window: window.length_tokens), max_tokens)


def in_order(windows: Iterable[Window], max_tokens: int) -> list[list[Window]]:
    """Batches in the given order, each as full as `max_tokens` with padding allows, and at least one window."""
    batches: list[list[Window]] = []
    batch: list[Window] = []
    longest = 0
    for window in windows:
        longest = max(longest, window.length_tokens)
        if batch and longest * (len(batch) + 1) > max_tokens:
            batches.append(batch)
            batch, longest = [], window.length_tokens
        batch.append(window)
    return [*batches, batch] if batch else batches
