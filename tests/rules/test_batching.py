"""Both schedulers, rule by rule. What holds for any traffic is in test_batching_traffic.py."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from rules.building import window_of
from rules.serving import Scheduler

from enricher.worker.records import Batch, Window
from enricher.worker.rules.batching import BatchRules, LengthBucketScheduler
from enricher.worker.rules.packing import ArrivalScheduler

RULES = BatchRules(bucket_edges=(8, 16, 32), max_batch_tokens=64, max_wait_s=0.1, run_overhead_tokens=4)


by_either = pytest.mark.parametrize("kind", [LengthBucketScheduler, ArrivalScheduler])


def lengths(batch: Batch | None) -> list[int]:
    """Lengths of a batch's windows, in its order."""
    assert batch is not None
    return [window.length_tokens for window in batch.windows]


def scheduler_with(*windows: Window, rules: BatchRules = RULES) -> LengthBucketScheduler:
    """A scheduler in which these windows wait."""
    scheduler = LengthBucketScheduler(rules)
    scheduler.add(windows)
    return scheduler


@by_either
def test_a_batch_is_due_when_its_oldest_window_has_waited(kind: Callable[[BatchRules], Scheduler]) -> None:
    """Not a moment before, and the windows that came later go along."""
    scheduler = kind(RULES)
    scheduler.add([window_of(8, 0.0), window_of(7, 0.09)])
    assert scheduler.next_batch(0.0999) is None
    assert [8, 7] == lengths(scheduler.next_batch(0.1))


@by_either
@pytest.mark.parametrize(("arrived_s", "max_wait_s"), [(0.1, 0.2), (1.1, 0.7), (3e6 + 0.1, 0.05)])
def test_what_is_due_at_a_time_is_given_at_that_time(
    kind: Callable[[BatchRules], Scheduler], arrived_s: float, max_wait_s: float
) -> None:
    """To the last bit: otherwise the loop would wake, find nothing, and wait for no time at all, again and again."""
    scheduler = kind(replace(RULES, max_wait_s=max_wait_s))
    scheduler.add([window_of(8, arrived_s)])
    due_s = scheduler.next_due_s()
    assert due_s is not None
    assert [8] == lengths(scheduler.next_batch(due_s))


def test_a_full_bucket_does_not_wait() -> None:
    """Four windows of 16 fill a batch of 64 tokens at once."""
    scheduler = scheduler_with(*[window_of(16, 5.0)] * 3)
    assert scheduler.next_batch(5.0) is None
    scheduler.add([window_of(16, 5.0)])
    assert [16] * 4 == lengths(scheduler.next_batch(5.0))


def test_a_window_that_could_take_no_other_along_does_not_wait() -> None:
    """With 40 of 64 tokens used a second window of its bucket does not fit, so there is nothing to wait for."""
    assert [40] == lengths(scheduler_with(window_of(40, 5.0)).next_batch(5.0))


@by_either
@pytest.mark.parametrize(("length", "budget"), [(100, RULES.max_batch_tokens), (32, 1)])
def test_a_window_above_the_budget_goes_alone(
    kind: Callable[[BatchRules], Scheduler], length: int, budget: int
) -> None:
    """The only batch that may be larger than allowed has one window, also where a lower budget was set."""
    scheduler = kind(RULES)
    scheduler.add([window_of(length, 0.0)] * 2)
    scheduler.limit_budget(budget)
    assert [[length], [length]] == [lengths(scheduler.next_batch(0.0)) for _ in range(2)]
    assert scheduler.next_batch(10.0) is None


def test_of_several_ready_buckets_the_one_with_the_oldest_head_goes_first() -> None:
    """A full bucket does not overtake a window that has waited longer and is due."""
    due, full = window_of(30, 0.0), [window_of(8, 0.05) for _ in range(8)]
    scheduler = scheduler_with(due, *full, rules=replace(RULES, run_overhead_tokens=0))
    assert [30] == lengths(scheduler.next_batch(0.1))
    assert [8] * 8 == lengths(scheduler.next_batch(0.1))


LATER = [4] * 11
"""Twelve with one of 20: they leave it its share of a later run."""


@pytest.mark.parametrize(
    ("overhead", "waiting", "taken"),
    [
        pytest.param(
            10, [32, 20], [32, 20], id="alone it would pay a run of 10, an eighth of 20 is cheap: 12 are less"
        ),
        pytest.param(10, [33, 20], [33], id="13 are not"),
        pytest.param(10, [32, 20, *LATER], [32], id="it would share a later run of 64 tokens: 12 are more"),
        pytest.param(10, [25, 20, *LATER], [25, 20], id="5 are not"),
        pytest.param(30, [30, 7, 15], [30, 15], id="of two of which one fits, the one that needs less padding"),
        pytest.param(
            30, [20, 17, 20, 21], [20, 20, 21], id="21 costs two tokens and makes the longest, 17 costs three"
        ),
        pytest.param(99, [20, 20, 32], [20, 20], id="a longer one only where all fit padded to it"),
        pytest.param(4, [32, 32, 31, 15], [32, 32], id="topping up keeps the budget"),
    ],
)
def test_a_batch_takes_along_what_costs_less_there(overhead: int, waiting: list[int], taken: list[int]) -> None:
    """Of other buckets, where the padding is less than what the windows would pay for a run without it."""
    windows = [window_of(length, index / 1000) for index, length in enumerate(waiting)]
    scheduler = scheduler_with(*windows, rules=replace(RULES, run_overhead_tokens=overhead))
    assert taken == lengths(scheduler.next_batch(0.1))


def test_any_lengths_go_together_where_nothing_is_padded() -> None:
    """In the order of arrival. Padded to the longest these would be 4 x 40 tokens."""
    scheduler = ArrivalScheduler(RULES)
    scheduler.add([window_of(length, 0.0) for length in (8, 40, 3, 13, 9)])
    assert [8, 40, 3, 13] == lengths(scheduler.next_batch(0.0))
    assert scheduler.next_batch(0.0) is None
    assert [9] == lengths(scheduler.next_batch(0.1))


def test_windows_of_one_bucket_go_in_the_order_of_their_arrival() -> None:
    """First come, first served."""
    windows = [window_of(16, index / 1000) for index in range(10)]
    scheduler = scheduler_with(*windows)
    taken = [window for _ in range(3) for window in (scheduler.next_batch(1.0) or Batch(())).windows]
    assert windows == taken


def test_the_longest_of_a_bucket_counts_only_while_it_waits() -> None:
    """With the 32 gone, one of 20 does not fill a batch of 64: it waits for company."""
    scheduler = scheduler_with(window_of(32, 0.0), window_of(20, 0.05), rules=replace(RULES, run_overhead_tokens=0))
    assert scheduler.next_due_s() == 0.0
    assert [32] == lengths(scheduler.next_batch(0.1))
    assert scheduler.next_due_s() == 0.05 + RULES.max_wait_s


@by_either
def test_a_window_that_is_added_late_counts_from_its_own_arrival(kind: Callable[[BatchRules], Scheduler]) -> None:
    """One that comes back after a failed run is as old as it was, and goes before those that arrived after it."""
    scheduler = kind(replace(RULES, run_overhead_tokens=0))
    scheduler.add([window_of(30, 0.05)])
    scheduler.add([window_of(8, 0.0)])
    assert scheduler.next_due_s() == 0.1
    batches = [scheduler.next_batch(0.16) for _ in range(2)]
    assert [8, 30] == [length for batch in batches if batch for length in lengths(batch)]


@by_either
def test_windows_of_forgotten_articles_are_dropped(kind: Callable[[BatchRules], Scheduler]) -> None:
    """With their tokens; the others keep their order."""
    gone, scheduler = window_of(8, 0.1), kind(RULES)
    scheduler.add([window_of(7, 0.0), gone, window_of(7, 0.2)])
    gone.ticket.forgotten = True
    scheduler.drop_forgotten()
    assert (2, 14) == (scheduler.queued_windows, scheduler.queued_tokens)
    assert [7, 7] == lengths(scheduler.next_batch(1.0))


@by_either
def test_a_lower_budget_counts_for_windows_already_queued(kind: Callable[[BatchRules], Scheduler]) -> None:
    """Eight of 16 would have been two batches of 64 tokens; with 32 they are four, and full ones at once."""
    scheduler = kind(RULES)
    scheduler.add([window_of(16, 5.0)] * 8)
    scheduler.limit_budget(32)
    assert [[16, 16]] * 4 == [lengths(scheduler.next_batch(5.0)) for _ in range(4)]
    assert (0, 0) == (scheduler.queued_windows, scheduler.queued_tokens)
