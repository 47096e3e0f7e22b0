"""A model of an engine that a scheduler feeds, and what must be true of everything that it was given.

The theorem. Let a batch take at most T on one of L threads, and let `wait` be a window's time until its batch starts. Then

    wait <= max_wait + T + k T / L

where k is how many older windows still wait at the moment at which this one falls due. Where the engine keeps up, k is 0,
and the wait is at most max_wait and one batch. It follows from three things, each of which is checked by itself too: a batch
that starts while something is due holds the oldest window of all; no thread rests while something is due; a batch is within
the budget. So from its due time until its start all L pool are busy: with the batches that they had begun before, at most
T each, and with batches that hold an older window, at most k of T each.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from enricher.core.batching import BatchRules
from enricher.records import Batch, Window

TICK_S = 1 / 1024
"""Times are multiples of it, so that sums are exact."""


class Scheduler(Protocol):
    """What is looked at here of a scheduler."""

    queued_windows: int

    def add(self, windows: Sequence[Window]) -> None:
        """Queue windows."""

    def next_due_s(self) -> float | None:
        """When the next batch is due."""

    def next_batch(self, now_s: float) -> Batch | None:
        """The batch to run next."""


@dataclass(frozen=True, slots=True)
class WorkerPool:
    """The engine: a batch takes a tick for each padded token and `overhead_ticks` for the run."""

    count: int
    overhead_ticks: int

    def batch_s(self, batch: Batch) -> float:
        """How long a thread is busy with it."""
        return (self.overhead_ticks + batch.padded_tokens) * TICK_S


@dataclass(frozen=True, slots=True)
class Start:
    """A batch that went to a thread, and when."""

    at_s: float
    batch: Batch


def serve(scheduler: Scheduler, articles: Sequence[Sequence[Window]], pool: WorkerPool) -> list[Start]:
    """Every batch in the order of its start, until nothing waits. Articles come in the order of their arrival."""
    todo, ends_s, starts, now_s = deque(articles), [0.0] * pool.count, list[Start](), 0.0
    while todo or scheduler.queued_windows:
        while todo and todo[0][0].arrived_s <= now_s:
            scheduler.add(todo.popleft())
        while min(ends_s) <= now_s and (batch := scheduler.next_batch(now_s)):
            ends_s[ends_s.index(min(ends_s))] = now_s + pool.batch_s(batch)
            starts.append(Start(now_s, batch))
        moments = [todo[0][0].arrived_s] if todo else []
        if min(ends_s) > now_s:
            moments.append(min(ends_s))
        elif (due_s := scheduler.next_due_s()) is not None:
            moments.append(due_s)
        if moments:
            assert min(moments) > now_s, "due, and yet nothing is given"
            now_s = min(moments)
    return starts


def check(starts: Sequence[Start], articles: Sequence[Sequence[Window]], rules: BatchRules, pool: WorkerPool) -> None:
    """All that must be true. Raises AssertionError."""
    windows = [window for article in articles for window in article]
    served = Counter(id(window) for start in starts for window in start.batch.windows)
    assert served == Counter(map(id, windows)), "lost, doubled or made up"
    for start in starts:
        small = start.batch.padded_tokens <= rules.max_batch_tokens or len(start.batch.windows) == 1
        assert small, "above the budget"
    started_s = {id(window): start.at_s for start in starts for window in start.batch.windows}
    _check_order(starts, windows, rules)
    _check_waits(windows, started_s, rules, pool)


def _check_order(starts: Sequence[Start], windows: Sequence[Window], rules: BatchRules) -> None:
    taken: set[int] = set()
    for start in starts:
        oldest = next(window for window in windows if id(window) not in taken)
        if start.at_s >= oldest.arrived_s + rules.max_wait_s:
            assert start.batch.windows[0].arrived_s == oldest.arrived_s, "something older was due"
        taken.update(map(id, start.batch.windows))


def _check_waits(windows: Sequence[Window], started_s: dict[int, float], rules: BatchRules, pool: WorkerPool) -> None:
    longest_tokens = max(rules.max_batch_tokens, *(window.length_tokens for window in windows))
    batch_s = (pool.overhead_ticks + longest_tokens) * TICK_S
    for index, window in enumerate(windows):
        due_s = window.arrived_s + rules.max_wait_s
        older = sum(started_s[id(other)] >= due_s for other in windows[:index])
        assert started_s[id(window)] <= due_s + batch_s + older * batch_s / pool.count, "waited for too long"
