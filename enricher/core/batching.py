"""LengthBucketScheduler: which windows go through the model together, and when.

Windows wait in buckets of similar length. A bucket is ready when it fills a batch (one window more would not fit), or when
its oldest window has waited `max_wait_s` since its own arrival (the timer never restarts). Of the ready ones the oldest head
goes first. Decides only; nothing here runs a model or reads a clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from enricher.records import Batch, Window


@dataclass(frozen=True, slots=True)
class BatchRules:
    """What a batch may be.

    `bucket_edges`: longest window of each bucket, growing; a window above the last edge goes into the last bucket.
    `max_batch_tokens`: padded tokens of a batch; exceeded only by a single window that is longer by itself.
    `max_wait_s`: how long a window may wait for company.
    `run_overhead_tokens`: the fixed cost of one run, as the number of tokens that it would compute meanwhile. A batch
    that is due but not full takes shorter windows along while padding them costs less than a run of their own.
    """

    bucket_edges: tuple[int, ...]
    max_batch_tokens: int
    max_wait_s: float
    run_overhead_tokens: int

    def __post_init__(self) -> None:
        assert self.bucket_edges, "at least one bucket"
        assert list(self.bucket_edges) == sorted(set(self.bucket_edges)), "edges grow"


class _Bucket:
    """Windows of similar length, oldest first, and the longest length among them."""

    __slots__ = ("longest", "windows")

    def __init__(self) -> None:
        self.windows: deque[Window] = deque()
        self.longest = 0

    def add(self, window: Window) -> None:
        self.windows.append(window)
        self.longest = max(self.longest, window.length_tokens)

    def take(self) -> Window:
        window = self.windows.popleft()
        if not self.windows:
            self.longest = 0
        return window

    def fills(self, max_batch_tokens: int) -> bool:
        """True where another window would not fit: then waiting for it is of no use."""
        return (len(self.windows) + 1) * self.longest > max_batch_tokens


class LengthBucketScheduler:
    """Holds windows until they make a good batch or have waited long enough."""

    def __init__(self, rules: BatchRules) -> None:
        self._rules = rules
        self._buckets = [_Bucket() for _ in rules.bucket_edges]
        self.queued_windows = 0
        self.queued_tokens = 0

    def add(self, windows: Sequence[Window]) -> None:
        """Queue windows; their waiting time counts from their own `arrived_s`."""
        last = len(self._buckets) - 1
        for window in windows:
            bucket = min(bisect_left(self._rules.bucket_edges, window.length_tokens), last)
            self._buckets[bucket].add(window)
            self.queued_windows += 1
            self.queued_tokens += window.length_tokens

    def next_due_s(self) -> float | None:
        """When the next batch is due if nothing more arrives: the past if one is ready now, None if nothing waits."""
        heads = [bucket.windows[0].arrived_s for bucket in self._buckets if bucket.windows]
        if not heads:
            return None
        if any(bucket.fills(self._rules.max_batch_tokens) for bucket in self._buckets):
            return min(heads)
        return min(heads) + self._rules.max_wait_s

    def next_batch(self, now_s: float, *, flush: bool = False) -> Batch | None:
        """The batch to run next, or None while it is better to wait. `flush`: whatever waits is due now."""
        ready = [index for index, bucket in enumerate(self._buckets) if self._ready(bucket, now_s, flush=flush)]
        if not ready:
            return None
        index = min(ready, key=lambda index: self._buckets[index].windows[0].arrived_s)
        windows = list(self._fill(index))
        self.queued_windows -= len(windows)
        self.queued_tokens -= sum(window.length_tokens for window in windows)
        return Batch(tuple(windows))

    def drop_forgotten(self) -> int:
        """Remove the windows whose ticket was forgotten; returns how many."""
        kept = [window for bucket in self._buckets for window in bucket.windows if window.ticket.live]
        dropped = self.queued_windows - len(kept)
        self._buckets = [_Bucket() for _ in self._buckets]
        self.queued_windows = self.queued_tokens = 0
        self.add(kept)
        return dropped

    def _ready(self, bucket: _Bucket, now_s: float, *, flush: bool) -> bool:
        if not bucket.windows:
            return False
        # The very sum that `next_due_s` tells: a difference rounds differently, and the loop would wake for nothing.
        due = now_s >= bucket.windows[0].arrived_s + self._rules.max_wait_s
        return due or flush or bucket.fills(self._rules.max_batch_tokens)

    def _fill(self, index: int) -> Iterator[Window]:
        """Windows of the bucket up to the budget, then, where there is room, of the next shorter ones."""
        bucket = self._buckets[index]
        # The longest waiting here bounds the batch: counting with it keeps the budget whatever comes next in line.
        longest = bucket.longest
        room = max(1, self._rules.max_batch_tokens // longest)
        while room and bucket.windows:
            yield bucket.take()
            room -= 1
        for shorter in reversed(self._buckets[:index]):
            while room and shorter.windows and self._worth_padding(shorter.windows[0], longest):
                yield shorter.take()
                room -= 1

    def _worth_padding(self, window: Window, longest: int) -> bool:
        """Padded to `longest` a window costs that many tokens; alone it costs its own and a run."""
        return longest <= window.length_tokens + self._rules.run_overhead_tokens
