"""The simulator: clock, threads and statistics are right, so that its figures are the scheduler's."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, pairwise
from random import Random

import pytest

from enricher.worker.rules.batch_rules import BatchRules
from enricher.worker.rules.batching import LengthBucketScheduler
from enricher.workshop.simulator import Arrival, EngineModel, Threads, windows_of
from tools.bench.simulator.arrivals import along, arriving, at_random, evenly, in_bursts, in_turn
from tools.bench.simulator.cost import articles_of, contenders
from tools.bench.simulator.lengths import Cut
from tools.bench.simulator.orders import AsTheyCome, PlainBuckets
from tools.bench.simulator.scenarios import CPU, GPU, ORDERS, OURS, Traffic, backlog, under_load
from tools.bench.simulator.statistics import Statistics, watch

RULES = BatchRules(bucket_edges=(8, 16, 32), max_batch_tokens=64, max_wait_s=0.1, run_overhead_tokens=4)
ENGINE = EngineModel(concurrency=1, thread_tokens_per_s=100, run_overhead_tokens=4)
ARTICLES = [10, 30, 50, 700, 900, 4000]
GPU_SHORT = replace(GPU, simulated_s=2.0, backlog_tokens=400_000)
CPU_SHORT = replace(CPU, simulated_s=20.0, backlog_tokens=60_000)


def simulated(arrivals: list[Arrival], engine: EngineModel = ENGINE) -> Statistics:
    """A simulation of the real scheduler."""
    return watch(LengthBucketScheduler(RULES), engine, arrivals, best_tokens_per_s=100)


def test_a_lone_window_waits_for_the_timer_and_is_then_run() -> None:
    """It waits 0.1 s, then runs for (4 + 10) tokens at 100 per second."""
    statistics = simulated([Arrival(1.0, (10,))])
    assert [0.1] == pytest.approx(statistics.waits_s)
    assert statistics.ended_s == pytest.approx(1.1 + 0.14)


def test_a_batch_that_is_ready_waits_for_a_thread() -> None:
    """With one thread the second of two full batches starts when the first ends; with two threads at once."""
    arrivals = [Arrival(0.0, (16,) * 8)]
    assert [0.0] * 4 + [0.68] * 4 == pytest.approx(simulated(arrivals).waits_s)
    assert [0.0] * 8 == simulated(arrivals, EngineModel(2, 100, 4)).waits_s


def test_tokens_are_counted_real_padded_and_computed() -> None:
    """A batch of 15 and 16 tokens has 31 real and 32 padded tokens; the cost of its padding depends on the engine."""
    statistics = simulated([Arrival(0.0, (15, 16))], EngineModel(1, 100, 4, padding_cost=0.1))
    assert (1, 31, 32) == (statistics.runs, statistics.real_tokens, statistics.padded_tokens)
    assert statistics.computed_tokens == pytest.approx(31.1)
    assert statistics.fill == pytest.approx(31.1 / 64)


def test_the_own_wait_leaves_out_the_work_in_front() -> None:
    """Of the second article's wait 0.12 s belong to the 32 tokens before it, which take 0.32 s at best."""
    statistics = simulated([Arrival(0.0, (32,)), Arrival(0.2, (32,))])
    assert [0.0, 0.12] == pytest.approx(statistics.behind_s)


def test_what_does_not_fit_waits_outside() -> None:
    """With capacity for 64 queued tokens, waits count from admission, not from publishing."""
    arrivals = in_turn([(16, 16, 16, 16)], 100)
    statistics = watch(LengthBucketScheduler(RULES), ENGINE, arrivals, best_tokens_per_s=100, max_queued_tokens=64)
    assert len(statistics.waits_s) == 400
    assert max(statistics.waits_s) == pytest.approx(0.68)


def test_a_thread_takes_one_batch_at_a_time() -> None:
    """Starting a second batch on a busy thread is a bug, and asserted."""
    threads = Threads(1)
    threads.start(0.0, 0.2)
    with pytest.raises(AssertionError, match="no thread is free"):
        threads.start(0.1, 0.3)


@pytest.mark.parametrize("order", ORDERS)
def test_every_window_is_served_once_whatever_the_order(order: str) -> None:
    """Each order returns as many tokens as it was given."""
    arrivals = list(arriving(at_random(20, Random(1)), [(5, 9), (30,), (40, 41, 40)], Random(2), until_s=20))
    statistics = watch(ORDERS[order](RULES), EngineModel(2, 500, 4), arrivals, best_tokens_per_s=1000)
    lengths = [length for arrival in arrivals for length in arrival.lengths_tokens]
    assert (sum(lengths), len(lengths)) == (statistics.real_tokens, len(statistics.waits_s))


@pytest.mark.parametrize("order", ORDERS)
def test_the_same_seed_gives_the_same_figures(order: str) -> None:
    """All figures, waits included, are equal to the last bit."""
    traffic = Traffic("any", Cut(128, 16), "random", 0.7)
    one, two = (under_load(GPU_SHORT, traffic, ARTICLES, order, capacity_tokens_per_s=400_000) for _ in range(2))
    assert one == two
    assert len(one.waits_s) > 1_000


def test_less_is_padded_than_in_plain_buckets_and_less_there_than_without() -> None:
    """On headlines under backlog our scheduler pads least, and plain buckets less than the order of arrival."""
    padded = [backlog(CPU_SHORT, Cut(128, 16), range(10, 75), order).padded_per_real for order in ORDERS]
    assert padded == sorted(padded, reverse=True)
    assert 1.0 <= padded[list(ORDERS).index(OURS)] < 1.03


def test_where_nothing_is_padded_batches_are_full() -> None:
    """The CUDA variant takes windows in order of arrival; buckets would leave part of each batch empty."""
    fills = {order: backlog(GPU_SHORT, Cut(128, 16), range(10, 75), order).fill for order in ORDERS}
    assert max(fills.values()) == fills[OURS] > 0.98


def test_articles_come_as_often_as_asked() -> None:
    """Every arrival pattern has the requested rate."""
    assert [0.0, 0.25, 0.5] == list(islice(evenly(4), 3))
    assert [0.0, 0.0, 2.0, 2.0, 4.0] == list(islice(in_bursts(1, 2.0), 5))
    times_s = list(islice(at_random(100, Random(3)), 10_000))
    assert times_s[-1] == pytest.approx(100, rel=0.05)
    assert all(before < after for before, after in pairwise(times_s))


def test_articles_follow_a_curve() -> None:
    """Nine tenths arrive in the busier half of each period."""
    times_s = list(islice(along(lambda at_s: 90 if at_s % 2 < 1 else 10, 90, Random(4)), 10_000))
    assert sum(at_s % 2 < 1 for at_s in times_s) == pytest.approx(9_000, rel=0.02)


def test_windows_are_cut_as_the_worker_cuts_them() -> None:
    """126 tokens fit into one window of 128 with two special tokens; 127 need two of even size, a multiple of 16."""
    assert Cut(128, 16).lengths(126) == (128,)
    assert Cut(128, 16).lengths(127) == (80, 80)


def test_windows_as_they_come_are_batched_up_to_the_budget() -> None:
    """Two windows of 30 and 20 tokens, padded to 30, fit into 64 tokens; a third would not."""
    scheduler = AsTheyCome(RULES)
    scheduler.add(windows_of((30, 20, 5, 40), 0.0))
    batches = [batch.windows for batch in iter(lambda: scheduler.next_batch(0.1), None)]
    assert [[30, 20], [5], [40]] == [[window.length_tokens for window in windows] for windows in batches]


def test_plain_buckets_keep_lengths_apart() -> None:
    """Each bucket forms its own batches, and the oldest head runs first."""
    scheduler = PlainBuckets(RULES)
    scheduler.add(windows_of((5, 30, 6, 31), 0.0))
    batches = [batch.windows for batch in iter(lambda: scheduler.next_batch(0.1), None)]
    assert [[5, 6], [30, 31]] == [[window.length_tokens for window in windows] for windows in batches]


def test_timing_takes_every_window_through_every_order() -> None:
    """Each contender asserts that it returned all windows; its result is a time."""
    articles = articles_of(Cut(128, 16), ARTICLES, 200)
    assert all(contender(articles) > 0 for contender in contenders(GPU.rules).values())


def test_an_article_is_done_when_its_last_window_is() -> None:
    """Batches of 64 and 16 tokens at 100 per second, with 4 more for each run; what came before `since_s` does not count."""
    arrivals = [Arrival(0.0, (16, 16, 16, 16)), Arrival(10.0, (16, 16, 16, 16, 16))]
    statistics = watch(LengthBucketScheduler(RULES), ENGINE, arrivals, best_tokens_per_s=100, since_s=5.0)
    assert statistics.latency_s(0.5) == pytest.approx(0.68 + 0.2)
    assert statistics.thread_s_per_article == pytest.approx(0.68 + 0.2)


def test_an_idle_engine_runs_a_lone_window_at_once() -> None:
    """With early batches nothing waits for the timer."""
    rules = replace(RULES, early_overhead=0.2)
    statistics = watch(LengthBucketScheduler(rules), ENGINE, [Arrival(1.0, (10,))], best_tokens_per_s=100)
    assert statistics.latency_s(0.5) == pytest.approx(0.14)
