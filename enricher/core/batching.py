"""LengthBucketScheduler: which windows go through the model together, and when.

*When*: windows of similar length share a bucket. A batch is ready when a bucket fills one (one window more would not fit),
or when the oldest window has waited `max_wait_s` since its own arrival (the timer never restarts). What is due goes
first, the oldest of all in front.

*Which*: the batch is built around the oldest window that is ready, from the lengths nearest to its own, shorter or longer,
whichever costs less padding, while they fit and while padding them costs less than leaving them to a later run. So a bucket
decides how soon a batch goes, and never what is padded to what.

Decides only; nothing here runs a model or reads a clock.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise
from math import inf
from operator import attrgetter

from enricher.records import Batch, Window

CHEAP_PADDING = 1 / 8
"""Padding up to this share of a window is taken for a batch that goes now, whatever a run costs. With less, batches under
light load are small; with more, padding eats what they save. Simulated with 0.1 to 0.25, the total hardly differs."""

_by_arrival = attrgetter("arrived_s")


@dataclass(frozen=True, slots=True)
class BatchRules:
    """What a batch may be.

    `bucket_edges`: longest window of each bucket, growing; a window above the last edge goes into the last bucket.
    `max_batch_tokens`: padded tokens of a batch; exceeded only by a single window that is longer by itself.
    `max_wait_s`: how long a window may wait for company.
    `run_overhead_tokens`: the fixed cost of one run, as the number of tokens that it would compute meanwhile. A batch
    takes windows of other lengths along while padding them costs less than their share of a later run.
    """

    bucket_edges: tuple[int, ...]
    max_batch_tokens: int
    max_wait_s: float
    run_overhead_tokens: int

    def __post_init__(self) -> None:
        assert self.bucket_edges, "at least one bucket"
        assert list(self.bucket_edges) == sorted(set(self.bucket_edges)), "edges grow"


@dataclass(slots=True, eq=False)
class _Bucket:
    """How many windows of similar length wait. `lengths`: bit n is set where a length of n tokens belongs here."""

    lengths: int
    queued: int = 0


class _Line(deque[Window]):
    """Waiting windows of exactly one length, oldest first."""

    __slots__ = ("bucket",)

    def __init__(self, bucket: _Bucket) -> None:
        super().__init__()
        self.bucket = bucket


class LengthBucketScheduler:
    """Holds windows until they make a good batch or have waited long enough."""

    def __init__(self, rules: BatchRules) -> None:
        self._rules = rules
        self._clear()

    def _clear(self) -> None:
        self._buckets = _buckets(self._rules.bucket_edges)
        self._lines: dict[int, _Line] = {}
        # Bit n is set where windows of n tokens wait: the next shorter or longer of them is a few machine words away.
        self._lengths = 0
        # All windows by arrival; one that was taken stays until it comes to the front (`_oldest`).
        self._order: deque[Window] = deque()
        self._newest_s = -inf
        self.queued_windows = 0
        self.queued_tokens = 0

    @property
    def max_batch_tokens(self) -> int:
        """The budget of a batch, as it is now."""
        return self._rules.max_batch_tokens

    def add(self, windows: Sequence[Window]) -> None:
        """Queue windows; their waiting time counts from their own `arrived_s`. Cheapest in the order of arrival."""
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
        """When the next batch is due if nothing more arrives: the past if one is ready now, None if nothing waits."""
        oldest = self._oldest()
        if oldest is None:
            return None
        return oldest.arrived_s if any(map(self._fills, self._buckets)) else self._due_s(oldest)

    def next_batch(self, now_s: float, *, flush: bool = False) -> Batch | None:
        """The batch to run next, or None while it is better to wait. `flush`: whatever waits is due now.

        Where something is due, the first window of the batch is the oldest of all that wait.
        """
        oldest = self._oldest()
        if oldest is None:
            return None
        if not flush and now_s < self._due_s(oldest):
            oldest = self._oldest_of_full_buckets()
        return self._batch_around(len(oldest.ids)) if oldest else None

    def drop_forgotten(self) -> int:
        """Remove the windows whose ticket was forgotten; returns how many."""
        before = self.queued_windows
        self._rebuild([window for window in self._waiting() if window.ticket.live])
        return before - self.queued_windows

    def lower_budget(self, max_batch_tokens: int) -> None:
        """From now on no batch has more padded tokens than this, those of windows already queued included.

        For a device whose memory turned out too small. A higher number than the present one changes nothing: several
        batches made under the old budget may fail one after the other.
        """
        assert max_batch_tokens >= 1, "a budget is at least a token"
        self._rules = replace(self._rules, max_batch_tokens=min(max_batch_tokens, self._rules.max_batch_tokens))

    # ---- who is ready

    def _due_s(self, window: Window) -> float:
        # One sum for `next_due_s` and `next_batch`: a difference rounds differently, and the loop would wake for nothing.
        return window.arrived_s + self._rules.max_wait_s

    def _oldest(self) -> Window | None:
        """The window that has waited longest."""
        order, lines = self._order, self._lines
        while order:
            window = order[0]
            line = lines[len(window.ids)]
            # All older ones are gone, so if it still waits it is the head of its line.
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
        """True where another window would not fit into a batch of this bucket: then waiting for it is of no use."""
        longest = (self._lengths & bucket.lengths).bit_length() - 1
        return (bucket.queued + 1) * longest > self._rules.max_batch_tokens

    # ---- who goes along

    def _batch_around(self, length: int) -> Batch:
        """Windows of this length, then of the nearest ones, while they fit and are worth their padding."""
        budget = self._rules.max_batch_tokens
        windows = self._take(length, max(1, budget // length))
        worth, longest = self._worth(), length
        shorter, longer = self._lengths & ((1 << length) - 1), self._lengths >> (length + 1) << (length + 1)
        while (room := budget // longest - len(windows)) > 0:
            below, above = shorter.bit_length() - 1, (longer & -longer).bit_length() - 1
            cost_below = (longest - below) / below if shorter else inf
            cost_above = self._cost_of_longer(above, longest, len(windows)) if longer else inf
            if min(cost_below, cost_above) > worth:
                break
            if cost_below <= cost_above:
                windows += self._take(below, room)
                shorter ^= 1 << below
            else:
                windows += self._take(above, budget // above - len(windows))
                longer ^= 1 << above
                longest = above
        return Batch(tuple(windows))

    def _worth(self) -> float:
        """How much padding a window's token may cost to go now.

        Left behind it pays its share of a run with all that stays, a full batch of them at most; and `CHEAP_PADDING`.
        """
        company = max(1, min(self._rules.max_batch_tokens, self.queued_tokens))
        return self._rules.run_overhead_tokens / company + CHEAP_PADDING

    def _cost_of_longer(self, length: int, longest: int, taken: int) -> float:
        """Padding per token that comes along, if the windows taken so far are padded to this longer length."""
        coming = min(self._rules.max_batch_tokens // length - taken, len(self._lines[length]))
        return taken * (length - longest) / (coming * length) if coming > 0 else inf

    def _take(self, length: int, at_most: int) -> list[Window]:
        """The oldest windows of one length."""
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
        """The line of this length, which is empty and about to have a window."""
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


def _buckets(edges: Sequence[int]) -> list[_Bucket]:
    """One for each edge; the last takes what is longer too."""
    bounds = [1, *(edge + 1 for edge in edges[:-1])]
    closed = [_Bucket((1 << stop) - (1 << start)) for start, stop in pairwise(bounds)]
    return [*closed, _Bucket(-1 << bounds[-1])]
