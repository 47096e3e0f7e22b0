"""The scheduler under any traffic: no window lost, none doubled, none too late, no batch too large."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from rules.building import raw, window_of
from rules.serving import TICK_S, Start, WorkerPool, check, serve
from support.properties import examples

from enricher.worker.records import Batch, Ticket, Window
from enricher.worker.rules.batching import BatchRules, LengthBucketScheduler

TRAFFIC_RULES = BatchRules(bucket_edges=(8, 16, 32), max_batch_tokens=64, max_wait_s=0.1, run_overhead_tokens=4)


class AnyTraffic(RuleBasedStateMachine):
    """Windows of any length arrive at any time, come back, are forgotten; batches are taken whenever one is due."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.waiting: dict[int, Window] = {}
        self.added_s: dict[int, float] = {}
        self.taken: list[Window] = []
        self.scheduler = LengthBucketScheduler(TRAFFIC_RULES)
        self.rules_ = TRAFFIC_RULES
        self.configured_tokens = TRAFFIC_RULES.max_batch_tokens

    @initialize(
        tokens=st.integers(16, 200),
        max_wait_s=st.sampled_from([0.0, 0.05, 0.1, 0.7]),
        overhead=st.integers(0, 40),
        early=st.sampled_from([0.0, 0.2, 2.0]),
    )
    def set_up(self, tokens: int, max_wait_s: float, overhead: int, early: float) -> None:
        """Any rules."""
        self.rules_ = replace(
            TRAFFIC_RULES,
            max_batch_tokens=tokens,
            max_wait_s=max_wait_s,
            run_overhead_tokens=overhead,
            early_overhead=early,
        )
        self.configured_tokens = tokens
        self.scheduler = LengthBucketScheduler(self.rules_)

    @rule(sizes=st.lists(st.integers(1, 80), min_size=1, max_size=6), pause_s=st.floats(0, 0.3))
    def arrive(self, sizes: list[int], pause_s: float) -> None:
        """Time passes with a batch taken at each due time, then the windows of an article come."""
        self.wait(pause_s)
        ticket = Ticket(raw(0), self.now_s)
        self.add([window_of(size, self.now_s, ticket) for size in sizes])

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def come_back(self, data: st.DataObject) -> None:
        """Windows of batches that failed are queued again, as old as they are, in any order."""
        back = data.draw(st.lists(st.sampled_from(self.taken), max_size=4, unique_by=id))
        self.taken = [window for window in self.taken if not any(window is other for other in back)]
        self.add(back)

    def add(self, windows: list[Window]) -> None:
        """Queue them and note it."""
        self.scheduler.add(windows)
        self.waiting |= {id(window): window for window in windows}
        self.added_s |= {id(window): self.now_s for window in windows}

    @rule(pause_s=st.floats(0, 1))
    def wait(self, pause_s: float) -> None:
        """Time passes; whenever something is due it is taken."""
        until_s = self.now_s + pause_s
        while (due_s := self.scheduler.next_due_s()) is not None and due_s <= until_s:
            self.now_s = max(self.now_s, due_s)
            batch = self.scheduler.next_batch(self.now_s)
            assert batch is not None, "due, and yet nothing is given"
            self.took(batch)
        assert self.scheduler.next_batch(until_s) is None, "given, though nothing was due"
        self.now_s = until_s

    @precondition(lambda self: self.waiting)
    @rule(idle_threads=st.integers(0, 4), load=st.floats(0, 1))
    def ask_early(self, idle_threads: int, load: float) -> None:
        """A thread may be idle: what it gets early holds the oldest window of all."""
        if (due_s := self.scheduler.next_due_s()) is None or due_s <= self.now_s:
            return
        oldest_s = min(window.arrived_s for window in self.waiting.values())
        batch = self.scheduler.next_batch(self.now_s, idle_threads=idle_threads, load=load)
        if batch is None:
            assert not (idle_threads and load == 0 and self.rules_.early_overhead), "waits beside an idle thread"
            return
        assert idle_threads, "early, though no thread is idle"
        assert self.rules_.early_overhead, "early, though nothing may go early"
        assert oldest_s == batch.windows[0].arrived_s, "early, and not the oldest"
        self.took(batch)

    @rule()
    def flush(self) -> None:
        """Everything is wanted now."""
        while batch := self.scheduler.next_batch(math.inf):
            self.took(batch)
        assert self.waiting == {}

    @rule(tokens=st.integers(1, 220))
    def limit_the_budget(self, tokens: int) -> None:
        """The device's memory is smaller than thought, or enough again."""
        self.scheduler.limit_budget(tokens)
        self.rules_ = replace(self.rules_, max_batch_tokens=min(tokens, self.configured_tokens))

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        """An article is forgotten: its windows go, all others stay."""
        ticket = data.draw(st.sampled_from(list(self.waiting.values()))).ticket
        ticket.forgotten = True
        kept = {key: window for key, window in self.waiting.items() if window.ticket is not ticket}
        self.taken = [window for window in self.taken if window.ticket is not ticket]
        self.scheduler.drop_forgotten()
        assert len(kept) == self.scheduler.queued_windows
        self.waiting = kept

    def took(self, batch: Batch) -> None:
        """A batch was given: check all that it must be."""
        assert batch.padded_tokens <= self.rules_.max_batch_tokens or len(batch.windows) == 1
        oldest_s = min(window.arrived_s for window in self.waiting.values())
        if self.now_s >= oldest_s + self.rules_.max_wait_s:
            assert oldest_s == batch.windows[0].arrived_s, "something older was due"
        for window in batch.windows:
            assert self.waiting.pop(id(window)) is window, "lost, doubled or made up"
            due_s = max(self.added_s[id(window)], window.arrived_s + self.rules_.max_wait_s)
            assert self.now_s <= due_s, "waited for too long"
        self.taken += batch.windows

    @invariant()
    def counts_are_right(self) -> None:
        """What is queued is what has arrived and was not given."""
        assert len(self.waiting) == self.scheduler.queued_windows
        assert sum(window.length_tokens for window in self.waiting.values()) == self.scheduler.queued_tokens

    @invariant()
    def due_time_is_that_of_the_oldest_or_past(self) -> None:
        """The timer counts from the oldest window's own arrival: no window that comes later can put it off."""
        due_s = self.scheduler.next_due_s()
        oldest_s = min((window.arrived_s for window in self.waiting.values()), default=None)
        if oldest_s is None:
            assert due_s is None
        else:
            assert due_s in (oldest_s, oldest_s + self.rules_.max_wait_s)


TestAnyTraffic = AnyTraffic.TestCase
TestAnyTraffic.settings = examples(200, stateful_step_count=30)


Articles = list[list[Window]]


def articles_of(gaps_and_sizes: Sequence[tuple[int, Sequence[int]]]) -> Articles:
    """Articles as they come: each so many ticks after the one before, with windows of these sizes."""
    articles, ticks = [], 0
    for gap, sizes in gaps_and_sizes:
        ticks += gap
        ticket = Ticket(raw(0), ticks * TICK_S)
        articles.append([window_of(size, ticks * TICK_S, ticket) for size in sizes])
    return articles


traffic = st.lists(
    st.tuples(st.integers(0, 120), st.lists(st.integers(1, 70), min_size=1, max_size=8)), min_size=1, max_size=40
).map(articles_of)
rules = st.builds(
    BatchRules,
    bucket_edges=st.sampled_from([(8, 16, 32), (64,), tuple(range(4, 65, 4))]),
    max_batch_tokens=st.integers(16, 200),
    max_wait_s=st.integers(0, 300).map(lambda ticks: ticks * TICK_S),
    run_overhead_tokens=st.integers(0, 60),
    early_overhead=st.sampled_from([0.0, 0.05, 0.4]),
)
loads = st.one_of(
    st.floats(0, 1).map(lambda load: lambda _: load),
    st.lists(st.floats(0, 1), min_size=1, max_size=5).map(lambda each: lambda now_s: each[int(now_s * 10) % len(each)]),
)
engines = st.builds(WorkerPool, count=st.integers(1, 4), overhead_ticks=st.integers(0, 60))


@given(articles=traffic, rules=rules, pool=engines, load=loads)
@examples(300)
def test_every_window_is_served_once_within_the_bound_the_oldest_due_first(
    articles: Articles, rules: BatchRules, pool: WorkerPool, load: Callable[[float], float]
) -> None:
    """For any traffic, any rules, any load and any engine, one that does not keep up included."""
    check(serve(LengthBucketScheduler(rules), articles, pool, load), articles, rules, pool)


@given(sizes=st.lists(st.lists(st.integers(1, 30), min_size=1, max_size=4), min_size=1, max_size=20), rules=rules)
@examples(100)
def test_with_a_thread_always_free_no_window_waits_beyond_the_timer(sizes: list[list[int]], rules: BatchRules) -> None:
    """With more pool than windows nothing is ever in the way."""
    articles = articles_of([(20, each) for each in sizes])
    starts = serve(LengthBucketScheduler(rules), articles, WorkerPool(sum(map(len, sizes)), 5))
    waits_s = [start.at_s - window.arrived_s for start in starts for window in start.batch.windows]
    assert max(waits_s) <= rules.max_wait_s


# ---- negative controls: what is checked here would be noticed if it were broken

RULES = BatchRules(bucket_edges=(8, 16, 32, 64), max_batch_tokens=128, max_wait_s=100 * TICK_S, run_overhead_tokens=20)


class RestartsItsTimer(LengthBucketScheduler):
    """Waits since the youngest window's arrival: a trickle puts the oldest off for ever."""

    def _due_s(self, window: Window) -> float:
        del window
        return self._newest_s + self._rules.max_wait_s


class YoungestFirst(LengthBucketScheduler):
    """Serves whom it has seen last."""

    def next_batch(self, now_s: float, *, idle_threads: int = 0, load: float = 1.0) -> Batch | None:
        """A batch around the youngest."""
        batch = super().next_batch(now_s, idle_threads=idle_threads, load=load)
        if batch is None or not self.queued_windows:
            return batch
        self.add(batch.windows)
        return self._batch_around(
            len(max(self._waiting(), key=lambda window: window.arrived_s).ids), self.max_batch_tokens
        )


class FullBucketsFirst(LengthBucketScheduler):
    """Lets a full bucket overtake what is due."""

    def next_batch(self, now_s: float, *, idle_threads: int = 0, load: float = 1.0) -> Batch | None:
        """A full batch wherever there is one."""
        full = self._oldest_of_full_buckets()
        return (
            self._batch_around(len(full.ids), self.max_batch_tokens)
            if full
            else super().next_batch(now_s, idle_threads=idle_threads, load=load)
        )


class CountsRealTokens(LengthBucketScheduler):
    """Forgets that windows are padded."""

    def _cost_of_longer(self, length: int, longest: int, taken: int, budget: int) -> float:
        del longest, taken, budget
        return 0.0 if self._lines[length] else float("inf")

    def _take(self, length: int, at_most: int) -> list[Window]:
        return super()._take(length, max(1, at_most))


class GivesLate(LengthBucketScheduler):
    """Gives nothing at the time that it said it would."""

    def next_batch(self, now_s: float, *, idle_threads: int = 0, load: float = 1.0) -> Batch | None:
        """A tick late."""
        return super().next_batch(now_s - TICK_S, idle_threads=idle_threads, load=load)


class LosesOne(LengthBucketScheduler):
    """Takes one more than it gives."""

    def next_batch(self, now_s: float, *, idle_threads: int = 0, load: float = 1.0) -> Batch | None:
        """Without the last."""
        batch = super().next_batch(now_s, idle_threads=idle_threads, load=load)
        return Batch(batch.windows[:-1]) if batch and len(batch.windows) > 1 else batch


class DoublesOne(LengthBucketScheduler):
    """Gives one again."""

    def next_batch(self, now_s: float, *, idle_threads: int = 0, load: float = 1.0) -> Batch | None:
        """With the first twice."""
        batch = super().next_batch(now_s, idle_threads=idle_threads, load=load)
        return Batch((*batch.windows, batch.windows[0])) if batch else None


def seeded(seed: int) -> Articles:
    """Traffic that keeps two pool busy, now and then for longer than the timer."""
    random = Random(seed)
    return articles_of(
        [(random.randrange(60), random.choices(range(1, 65), k=random.randint(1, 6))) for _ in range(120)]
    )


def outcome_of(scheduler: LengthBucketScheduler, articles: Articles) -> list[Start]:
    """Served on two pool, and checked."""
    starts = serve(scheduler, articles, WorkerPool(2, 10))
    check(starts, articles, RULES, WorkerPool(2, 10))
    return starts


@pytest.mark.parametrize(
    ("broken", "what"),
    [
        (YoungestFirst, "something older was due"),
        (FullBucketsFirst, "something older was due"),
        (CountsRealTokens, "above the budget"),
        (LosesOne, "lost, doubled or made up"),
        (DoublesOne, "lost, doubled or made up"),
    ],
)
def test_a_broken_scheduler_is_caught(broken: type[LengthBucketScheduler], what: str) -> None:
    """Each of the claims can be seen to fail."""
    articles = seeded(1)
    outcome_of(LengthBucketScheduler(RULES), articles)
    with pytest.raises(AssertionError, match=what):
        outcome_of(broken(RULES), articles)


@pytest.mark.parametrize(
    ("broken", "what"), [(RestartsItsTimer, "waited for too long"), (GivesLate, "due, and yet nothing is given")]
)
def test_a_broken_timer_is_caught(broken: type[LengthBucketScheduler], what: str) -> None:
    """A trickle too thin to fill a batch: each window comes before the one before it was due."""
    articles = articles_of([(60, [2])] * 40)
    outcome_of(LengthBucketScheduler(RULES), articles)
    with pytest.raises(AssertionError, match=what):
        outcome_of(broken(RULES), articles)
