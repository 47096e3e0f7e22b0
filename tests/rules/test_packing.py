"""Batches for forms that pad nothing: in the order of arrival, as many as fit."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st
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


def test_forgotten_windows_are_dropped() -> None:
    """With their tokens."""
    gone = window_of(8, 0.0)
    scheduler = scheduler_with(gone, window_of(5, 0.0))
    gone.ticket.forgotten = True
    scheduler.drop_forgotten()
    assert (1, 5) == (scheduler.queued_windows, scheduler.queued_tokens)


def test_a_lower_budget_holds_for_what_waits_already() -> None:
    """And a higher one, up to that of the rules."""
    scheduler = scheduler_with(*[window_of(8, 0.0)] * 4)
    scheduler.limit_budget(16)
    assert [8, 8] == lengths(scheduler.next_batch(0.0))
    scheduler.limit_budget(1_000)
    assert scheduler.max_batch_tokens == RULES.max_batch_tokens


@given(st.lists(st.tuples(st.integers(1, 90), st.floats(0, 0.05)), max_size=60))
def test_nothing_is_lost_doubled_or_kept_waiting(traffic: list[tuple[int, float]]) -> None:
    """An engine that is always free: batches are full or due, within the budget, and in order."""
    scheduler, now_s, given_out = ArrivalScheduler(replace(RULES)), 0.0, list[Window]()
    windows = []
    for length, pause_s in traffic:
        now_s += pause_s
        windows.append(window_of(length, now_s))
        while (due_s := scheduler.next_due_s()) is not None and due_s <= now_s:
            given_out += _checked(scheduler.next_batch(due_s), due_s)
        scheduler.add(windows[-1:])
    while batch := scheduler.next_batch(math.inf):
        given_out += batch.windows
    assert windows == given_out


def _checked(batch: Batch | None, now_s: float) -> tuple[Window, ...]:
    assert batch is not None
    assert len(batch.windows) == 1 or batch.real_tokens <= RULES.max_batch_tokens
    assert all(now_s <= window.arrived_s + RULES.max_wait_s for window in batch.windows)
    return batch.windows
