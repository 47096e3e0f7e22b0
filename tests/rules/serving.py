"""A model of an engine that a scheduler feeds, and what must be true of everything that it was given.

The theorem. Let a batch take at most T on one of L threads, and let `wait` be a window's time until its batch starts. Then

    wait <= max_wait + T + k T / L

where k is how many older windows still wait at the moment at which this one falls due. Where the engine keeps up, k is 0,
and the wait is at most max_wait and one batch. It follows from three things, each of which is checked by itself too: a batch
that starts while something is due holds the oldest window of all; no thread rests while something is due; a batch is within
the budget. So from its due time until its start all L pool are busy: with the batches that they had begun before, at most
T each, and with batches that hold an older window, at most k of T each.

Early batches change none of this: they go to idle threads, hold the oldest window, and are within the budget.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from enricher.worker.records import Batch, Window
from enricher.worker.rules.batching import EARLY_POWER, BatchRules, LengthBucketScheduler
from enricher.worker.rules.load import share_at_load
from enricher.worker.rules.packing import ArrivalScheduler

TICK_S = 1 / 1024
"""Times are multiples of it, so that sums are exact."""

Scheduler = LengthBucketScheduler | ArrivalScheduler


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
    """A batch that went to a thread, when, and what the scheduler was told and said before."""

    at_s: float
    batch: Batch
    due_s: float
    idle_threads: int
    load: float
    queued_tokens: int

    @property
    def early(self) -> bool:
        """Neither due nor full."""
        return self.at_s < self.due_s


def full_load(now_s: float) -> float:
    """At which nothing goes early."""
    del now_s
    return 1.0


def serve(
    scheduler: Scheduler,
    articles: Sequence[Sequence[Window]],
    pool: WorkerPool,
    load: Callable[[float], float] = full_load,
) -> list[Start]:
    """Every batch in the order of its start, until nothing waits. Articles come in the order of their arrival."""
    todo, ends_s, starts, now_s = deque(articles), [0.0] * pool.count, list[Start](), 0.0
    while todo or scheduler.queued_windows:
        while todo and todo[0][0].arrived_s <= now_s:
            scheduler.add(todo.popleft())
        while start := _next_start(scheduler, now_s, sum(end_s <= now_s for end_s in ends_s), load(now_s)):
            ends_s[ends_s.index(min(ends_s))] = now_s + pool.batch_s(start.batch)
            starts.append(start)
        moments = [todo[0][0].arrived_s] if todo else []
        moments += [end_s for end_s in ends_s if end_s > now_s]
        if min(ends_s) <= now_s and (due_s := scheduler.next_due_s()) is not None:
            moments.append(due_s)
        if moments:
            assert min(moments) > now_s, "due, and yet nothing is given"
            now_s = min(moments)
    assert scheduler.queued_tokens == 0, "counts tokens that are gone"
    return starts


def _next_start(scheduler: Scheduler, now_s: float, idle_threads: int, load: float) -> Start | None:
    due_s, queued_tokens = scheduler.next_due_s(), scheduler.queued_tokens
    if due_s is None:
        return None
    if not idle_threads and due_s <= now_s:
        return None
    batch = scheduler.next_batch(now_s, idle_threads=idle_threads, load=load)
    assert idle_threads or not batch, "early, though no thread is idle"
    return Start(now_s, batch, due_s, idle_threads, load, queued_tokens) if batch else None


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
    _check_early(starts, rules)
    _check_waits(windows, started_s, rules, pool)


def _check_order(starts: Sequence[Start], windows: Sequence[Window], rules: BatchRules) -> None:
    taken: set[int] = set()
    waiting = deque(windows)
    for start in starts:
        while id(oldest := waiting[0]) in taken:
            waiting.popleft()
        if start.at_s >= oldest.arrived_s + rules.max_wait_s:
            assert start.batch.windows[0].arrived_s == oldest.arrived_s, "something older was due"
        if start.early:
            assert start.batch.windows[0].arrived_s == oldest.arrived_s, "early, and not the oldest"
        taken.update(map(id, start.batch.windows))


def _check_early(starts: Sequence[Start], rules: BatchRules) -> None:
    for start in starts:
        if not start.early:
            continue
        allowed = share_at_load(rules.early_overhead, start.load, EARLY_POWER)
        assert rules.run_overhead_tokens <= allowed * start.queued_tokens * (1 + 1e-9), "too little for an early batch"
        least_tokens = max(1, rules.run_overhead_tokens / allowed)
        parts = min(start.idle_threads, int(start.queued_tokens / least_tokens))
        small = start.batch.padded_tokens < start.queued_tokens / parts + 1 or len(start.batch.windows) == 1
        assert small or parts == 1, "nothing is left to the other threads"


def check_nothing_waits(starts: Sequence[Start], pool: WorkerPool) -> None:
    """As it must be without load: from a window's arrival until its start all threads are busy."""
    runs = [(start.at_s, start.at_s + pool.batch_s(start.batch)) for start in starts]
    arrivals_s = {window.arrived_s for start in starts for window in start.batch.windows}
    idle_s = [
        now_s
        for now_s in arrivals_s.union(end_s for _, end_s in runs)
        if pool.count != sum(began_s <= now_s < end_s for began_s, end_s in runs)
    ]
    for start in starts:
        oldest_s = min(window.arrived_s for window in start.batch.windows)
        assert not any(oldest_s <= now_s < start.at_s for now_s in idle_s), "waits beside an idle thread"


def _check_waits(windows: Sequence[Window], started_s: dict[int, float], rules: BatchRules, pool: WorkerPool) -> None:
    longest_tokens = max(rules.max_batch_tokens, *(window.length_tokens for window in windows))
    batch_s = (pool.overhead_ticks + longest_tokens) * TICK_S
    before_s: list[float] = []
    for window in windows:
        due_s = window.arrived_s + rules.max_wait_s
        older = len(before_s) - bisect_left(before_s, due_s)
        assert started_s[id(window)] <= due_s + batch_s + older * batch_s / pool.count, "waited for too long"
        insort(before_s, started_s[id(window)])
