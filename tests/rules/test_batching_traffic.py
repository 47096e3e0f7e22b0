"""The scheduler under any traffic: no window lost, none doubled, none too late, no batch too large."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rules.building import raw, window_of
from rules.serving import TICK_S, Start, WorkerPool, check, serve
from support.properties import examples

from enricher.worker.records import Batch, Ticket, Window
from enricher.worker.rules.batching import BatchRules, LengthBucketScheduler

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
