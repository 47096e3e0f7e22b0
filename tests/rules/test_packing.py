"""Batches for forms that pad nothing: in the order of arrival, as many as fit."""

from __future__ import annotations

from rules.building import window_of

from enricher.worker.records import Batch, Window
from enricher.worker.rules.batching import BatchRules
from enricher.worker.rules.packing import ArrivalScheduler

RULES = BatchRules(bucket_edges=(64,), max_batch_tokens=64, max_wait_s=0.1, run_overhead_tokens=0)


def lengths(batch: Batch | None) -> list[int]:
    """Lengths of a batch's windows, in its order."""
    assert batch is not None
    return [window.length_tokens for window in batch.windows]


def scheduler_with(*windows: Window) -> ArrivalScheduler:
    """A scheduler in which these windows wait."""
    scheduler = ArrivalScheduler(RULES)
    scheduler.add(windows)
    return scheduler


def test_any_lengths_go_together_up_to_the_real_tokens() -> None:
    """Padded to the longest these would be 4 x 40 tokens."""
    scheduler = scheduler_with(*(window_of(length, 0.0) for length in (8, 40, 3, 13, 9)))
    assert [8, 40, 3, 13] == lengths(scheduler.next_batch(0.0))
    assert scheduler.next_batch(0.0) is None
    assert [9] == lengths(scheduler.next_batch(0.1))
    assert (0, 0) == (scheduler.queued_tokens, scheduler.queued_windows)


def test_a_window_that_comes_back_keeps_its_place() -> None:
    """Its waiting time counts from its own arrival."""
    scheduler = scheduler_with(window_of(8, 1.0))
    scheduler.add([window_of(9, 0.5)])
    assert 0.6 == scheduler.next_due_s()
    assert [9, 8] == lengths(scheduler.next_batch(0.6))


def test_a_lower_budget_holds_for_what_waits_already() -> None:
    """And a higher one, up to that of the rules."""
    scheduler = scheduler_with(*[window_of(8, 0.0)] * 4)
    scheduler.limit_budget(16)
    assert [[8, 8]] * 2 == [lengths(scheduler.next_batch(0.0)) for _ in range(2)]
    scheduler.limit_budget(1_000)
    assert scheduler.max_batch_tokens == RULES.max_batch_tokens
