"""Both schedulers under any traffic: no window lost, doubled or too late, no batch too large; and early batches.

`serving.py` checks it; each of its claims can be seen to fail.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rules.building import raw, window_of
from rules.serving import TICK_S, Scheduler, Start, WorkerPool, check, check_nothing_waits, serve
from support.properties import examples

from enricher.worker.records import Batch, Ticket, Window
from enricher.worker.rules.batching import BatchRules, LengthBucketScheduler
from enricher.worker.rules.packing import ArrivalScheduler

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


def outcome_of(scheduler: LengthBucketScheduler, articles: Articles) -> list[Start]:
    """Served on two pool, and checked."""
    starts = serve(scheduler, articles, WorkerPool(2, 10))
    check(starts, articles, RULES, WorkerPool(2, 10))
    return starts


@pytest.mark.parametrize(
    ("broken", "what"),
    [
        (YoungestFirst, "something older was due"),
        (CountsRealTokens, "above the budget"),
        (LosesOne, "lost, doubled or made up"),
    ],
)
def test_a_broken_scheduler_is_caught(broken: type[LengthBucketScheduler], what: str) -> None:
    """Each of the claims can be seen to fail."""
    articles = some_articles(1, 30)
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


EARLY = BatchRules(
    bucket_edges=(8, 16, 32, 64),
    max_batch_tokens=128,
    max_wait_s=100 * TICK_S,
    run_overhead_tokens=10,
    early_overhead=0.4,
)
POOL = WorkerPool(2, 10)
Make = Callable[[BatchRules], Scheduler]
both = pytest.mark.parametrize("make", [LengthBucketScheduler, ArrivalScheduler])


def some_articles(seed: int, gap: int) -> Articles:
    """Fifty articles, on average so many ticks apart."""
    random = Random(seed)
    return articles_of(
        [(random.randrange(2 * gap), random.choices(range(1, 65), k=random.randint(1, 4))) for _ in range(50)]
    )


def summary(starts: list[Start]) -> list[tuple[float, list[int]]]:
    """When each batch started, and which windows were in it."""
    return [(start.at_s, [id(window) for window in start.batch.windows]) for start in starts]


@both
@pytest.mark.parametrize(
    ("lengths", "idle_threads", "load", "given"),
    [
        pytest.param([3], 1, 0.0, [3], id="without load anything is worth a run"),
        pytest.param([3, 30, 20], 0, 0.0, None, id="at a busy device it would wait, and nothing could join it"),
        pytest.param([12, 12], 1, 0.5, None, id="at half load an overhead of 10 is 40 % of 25 tokens"),
        pytest.param([12, 13], 1, 0.5, [12, 13], id="which wait here"),
        pytest.param([12] * 4, 1, 0.0, [12] * 4, id="one idle thread takes all"),
        pytest.param([12] * 4, 2, 0.0, [12] * 2, id="two share it"),
        pytest.param([12] * 4, 9, 0.0, [12], id="nine do"),
        pytest.param([12] * 4, 9, 0.5, [12] * 4, id="of 48 tokens nothing worth a run would be left"),
        pytest.param([12] * 5, 9, 0.5, [12] * 2, id="60 tokens are two portions"),
    ],
)
def test_what_an_idle_thread_gets(
    make: Make, lengths: list[int], idle_threads: int, load: float, given: list[int] | None
) -> None:
    """Of windows that came one tick after the other, just then: the oldest. With the setting at zero, nothing."""
    for rules, expected in ((EARLY, given), (replace(EARLY, early_overhead=0.0), None)):
        scheduler = make(rules)
        scheduler.add([window_of(length, tick * TICK_S) for tick, length in enumerate(lengths)])
        batch = scheduler.next_batch(len(lengths) * TICK_S, idle_threads=idle_threads, load=load)
        assert expected == ([window.length_tokens for window in batch.windows] if batch else None)


# ---- any traffic


@both
@given(seed=st.integers(0, 10_000), gap=st.integers(1, 80), threads=st.integers(1, 4))
@examples(40)
def test_without_load_nothing_waits_beside_an_idle_thread(make: Make, seed: int, gap: int, threads: int) -> None:
    """Whatever comes, and however many threads there are."""
    articles, pool = some_articles(seed, gap), WorkerPool(threads, 10)
    check_nothing_waits(serve(make(EARLY), articles, pool, lambda _: 0.0), pool)


@both
@given(seed=st.integers(0, 10_000), gap=st.integers(1, 80), load=st.sampled_from([0.95, 0.99, 1.0]))
@examples(40)
def test_near_capacity_batches_are_as_without_early_ones(make: Make, seed: int, gap: int, load: float) -> None:
    """The same windows at the same times."""
    articles = some_articles(seed, gap)
    late = serve(make(replace(EARLY, early_overhead=0.0)), articles, POOL, lambda _: load)
    assert summary(late) == summary(serve(make(EARLY), articles, POOL, lambda _: load))


@given(seed=st.integers(0, 10_000), gap=st.integers(1, 80), load=st.floats(0, 1))
@examples(60)
def test_packed_batches_keep_the_bound_at_any_load(seed: int, gap: int, load: float) -> None:
    """As test_batching_traffic.py shows for those that pad; here windows go by arrival, and real tokens count."""
    articles = some_articles(seed, gap)
    starts = serve(ArrivalScheduler(EARLY), articles, POOL, lambda _: load)
    windows = [window for article in articles for window in article]
    assert windows == [window for start in starts for window in start.batch.windows]
    for start in starts:
        assert start.batch.real_tokens <= EARLY.max_batch_tokens
        if start.early:
            portion = EARLY.early_tokens(start.queued_tokens, start.idle_threads, load) or 0
            assert start.batch.real_tokens <= portion or len(start.batch.windows) == 1


# ---- negative controls


class NeverEarly(LengthBucketScheduler):
    """Lets idle threads wait."""

    def next_batch(self, now_s: float, *, idle_threads: int = 0, load: float = 1.0) -> Batch | None:
        """As before."""
        del idle_threads, load
        return super().next_batch(now_s)


class EarlyForTheBusy(LengthBucketScheduler):
    """Gives early batches whether or not a thread is idle."""

    def next_batch(self, now_s: float, *, idle_threads: int = 0, load: float = 1.0) -> Batch | None:
        """As if one were."""
        return super().next_batch(now_s, idle_threads=max(1, idle_threads), load=load)


class EarlyAtAnyLoad(LengthBucketScheduler):
    """Ignores the load."""

    def next_batch(self, now_s: float, *, idle_threads: int = 0, load: float = 1.0) -> Batch | None:
        """As if there were none."""
        del load
        return super().next_batch(now_s, idle_threads=idle_threads, load=0.0)


class YoungestEarly(LengthBucketScheduler):
    """Serves early whom it has seen last."""

    def next_batch(self, now_s: float, *, idle_threads: int = 0, load: float = 1.0) -> Batch | None:
        """Around the youngest."""
        batch = super().next_batch(now_s)
        if batch or not self.queued_windows or not idle_threads or load:
            return batch
        *others, youngest = self._waiting()
        self._rebuild(others)
        return Batch((youngest,))


class AllForOne(LengthBucketScheduler):
    """Leaves nothing to the other threads."""

    def next_batch(self, now_s: float, *, idle_threads: int = 0, load: float = 1.0) -> Batch | None:
        """As if one were idle."""
        return super().next_batch(now_s, idle_threads=min(1, idle_threads), load=load)


@pytest.mark.parametrize(
    ("broken", "load", "what"),
    [
        (NeverEarly, 0.0, "waits beside an idle thread"),
        (EarlyForTheBusy, 0.0, "early, though no thread is idle"),
        (EarlyAtAnyLoad, 0.5, "too little for an early batch"),
        (YoungestEarly, 0.0, "early, and not the oldest"),
        (AllForOne, 0.0, "nothing is left to the other threads"),
    ],
)
def test_a_broken_rule_of_early_batches_is_caught(broken: type[LengthBucketScheduler], load: float, what: str) -> None:
    """Each of the claims can be seen to fail."""
    articles = some_articles(1, 40)

    def checked(scheduler: LengthBucketScheduler) -> None:
        starts = serve(scheduler, articles, POOL, lambda _: load)
        check(starts, articles, EARLY, POOL)
        if not load:
            check_nothing_waits(starts, POOL)

    checked(LengthBucketScheduler(EARLY))
    with pytest.raises(AssertionError, match=what):
        checked(broken(EARLY))
