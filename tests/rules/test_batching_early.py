"""Early batches: what an idle thread gets before anything is due, from both schedulers; serving.py checks the rest."""

from __future__ import annotations

from collections.abc import Callable
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

RULES = BatchRules(
    bucket_edges=(8, 16, 32, 64),
    max_batch_tokens=128,
    max_wait_s=100 * TICK_S,
    run_overhead_tokens=10,
    early_overhead=0.4,
)
POOL = WorkerPool(2, 10)
Articles = list[list[Window]]
Make = Callable[[BatchRules], Scheduler]
both = pytest.mark.parametrize("make", [LengthBucketScheduler, ArrivalScheduler])


def articles_of(seed: int, gap: int, windows: int = 4) -> Articles:
    """Fifty articles, on average so many ticks apart."""
    random, ticks, articles = Random(seed), 0, []
    for _ in range(50):
        ticks += random.randrange(2 * gap)
        ticket = Ticket(raw(0), ticks * TICK_S)
        lengths = random.choices(range(1, 65), k=random.randint(1, windows))
        articles.append([window_of(length, ticks * TICK_S, ticket) for length in lengths])
    return articles


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
    for rules, expected in ((RULES, given), (replace(RULES, early_overhead=0.0), None)):
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
    articles, pool = articles_of(seed, gap), WorkerPool(threads, 10)
    check_nothing_waits(serve(make(RULES), articles, pool, lambda _: 0.0), pool)


@both
@given(seed=st.integers(0, 10_000), gap=st.integers(1, 80), load=st.sampled_from([0.95, 0.99, 1.0]))
@examples(40)
def test_near_capacity_batches_are_as_without_early_ones(make: Make, seed: int, gap: int, load: float) -> None:
    """The same windows at the same times."""
    articles = articles_of(seed, gap)
    late = serve(make(replace(RULES, early_overhead=0.0)), articles, POOL, lambda _: load)
    assert summary(late) == summary(serve(make(RULES), articles, POOL, lambda _: load))


@given(seed=st.integers(0, 10_000), gap=st.integers(1, 80), load=st.floats(0, 1))
@examples(60)
def test_packed_batches_keep_the_bound_at_any_load(seed: int, gap: int, load: float) -> None:
    """As test_batching_traffic.py shows for those that pad; here windows go by arrival, and real tokens count."""
    articles = articles_of(seed, gap)
    starts = serve(ArrivalScheduler(RULES), articles, POOL, lambda _: load)
    windows = [window for article in articles for window in article]
    assert windows == [window for start in starts for window in start.batch.windows]
    for start in starts:
        assert start.batch.real_tokens <= RULES.max_batch_tokens
        if start.early:
            portion = RULES.early_tokens(start.queued_tokens, start.idle_threads, load) or 0
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
def test_a_broken_rule_is_caught(broken: type[LengthBucketScheduler], load: float, what: str) -> None:
    """Each of the claims can be seen to fail."""
    articles = articles_of(1, 40)

    def checked(scheduler: LengthBucketScheduler) -> None:
        starts = serve(scheduler, articles, POOL, lambda _: load)
        check(starts, articles, RULES, POOL)
        if not load:
            check_nothing_waits(starts, POOL)

    checked(LengthBucketScheduler(RULES))
    with pytest.raises(AssertionError, match=what):
        checked(broken(RULES))
