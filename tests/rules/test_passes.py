"""PassScheduler: several passes, of which the one whose oldest window arrived first goes first."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rules.building import window_of

from enricher.worker.records import Window
from enricher.worker.rules.batch_rules import BatchRules
from enricher.worker.rules.batching import LengthBucketScheduler
from enricher.worker.rules.packing import ArrivalScheduler
from enricher.worker.rules.passes import PassScheduler

MAX_WAIT_S, BUDGET = 1.0, 8
RULES = BatchRules((4, 8), BUDGET, MAX_WAIT_S, run_overhead_tokens=1)
EARLY = BatchRules((4, 8), BUDGET, MAX_WAIT_S, run_overhead_tokens=1, early_overhead=0.25)


def scheduler_of(rules: BatchRules = RULES) -> PassScheduler:
    """Two passes."""
    return PassScheduler([LengthBucketScheduler(rules), ArrivalScheduler(rules)])


def window(pass_index: int, arrived_s: float, length: int = 4) -> Window:
    """A window of an article that is in this pass alone."""
    return window_of(length, arrived_s, pass_index=pass_index)


@pytest.mark.parametrize("first", [0, 1])
def test_of_the_ready_passes_the_one_whose_oldest_window_arrived_first_goes(first: int) -> None:
    """Whether it is ready because it is full or because it has waited long enough."""
    scheduler = scheduler_of()
    scheduler.add([window(first, 0.0), window(1 - first, 0.25), window(1 - first, 0.5)])
    full = scheduler.next_batch(0.5)
    assert full is not None
    assert (1 - first, 2) == (full.pass_index, len(full.windows))
    assert scheduler.next_batch(0.5) is None
    scheduler.add([window(1 - first, 0.5), window(1 - first, 0.5)])
    due = scheduler.next_batch(MAX_WAIT_S)
    assert due is not None
    assert first == due.pass_index


def test_a_batch_has_windows_of_one_pass() -> None:
    """Though they came together."""
    scheduler = scheduler_of()
    scheduler.add([window(index % 2, 0.0, 1) for index in range(8)])
    batches = [scheduler.next_batch(5.0), scheduler.next_batch(5.0), scheduler.next_batch(5.0)]
    assert [4, 4, 0] == [len(batch.windows) if batch else 0 for batch in batches]
    assert all(len({each.part.pass_index for each in batch.windows}) == 1 for batch in batches if batch)


def test_an_idle_thread_gets_a_batch_of_a_pass_by_what_waits_there() -> None:
    """What waits for the other pass does not make it worth a run."""
    scheduler = scheduler_of(EARLY)
    scheduler.add([window(0, 0.0, 2), window(1, 0.0, 2)])
    assert scheduler.next_batch(0.0, idle_threads=1, load=0.5) is None
    scheduler.add([window(1, 0.0, 2)])
    early = scheduler.next_batch(0.0, idle_threads=1, load=0.5)
    assert early is not None
    assert (1, 4) == (early.pass_index, early.real_tokens)


def test_it_is_due_when_its_first_pass_is() -> None:
    """None while nothing waits."""
    scheduler = scheduler_of()
    assert scheduler.next_due_s() is None
    scheduler.add([window(1, 0.5)])
    scheduler.add([window(0, 0.25)])
    assert 0.25 + MAX_WAIT_S == scheduler.next_due_s()


def test_a_lower_budget_is_that_of_one_pass() -> None:
    """The largest is that of the scheduler; what waits is counted over all passes."""
    scheduler = scheduler_of()
    scheduler.of_pass(1).limit_budget(4)
    assert (8, 4, 8) == (
        scheduler.of_pass(0).max_batch_tokens,
        scheduler.of_pass(1).max_batch_tokens,
        scheduler.max_batch_tokens,
    )
    windows = [window(0, 0.0), window(1, 0.0, 2), window(1, 0.0, 3)]
    scheduler.add(windows)
    assert (3, 9, 5) == (scheduler.queued_windows, scheduler.queued_tokens, scheduler.of_pass(1).queued_tokens)
    windows[1].ticket.forgotten = windows[0].ticket.forgotten = True
    scheduler.drop_forgotten()
    assert (1, 3) == (scheduler.queued_windows, scheduler.queued_tokens)


Arrivals = list[tuple[int, int, int]]
"""Of each window: its pass, how many turns it comes after the one before, its length."""


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3), st.integers(1, 8)), max_size=60), st.integers(1, 4))
def test_no_pass_starves(arrivals: Arrivals, turns_per_batch: int) -> None:
    """On one slow thread, every window goes once, and never before all windows that arrived `max_wait_s` earlier."""
    scheduler, waiting = scheduler_of(), list[Window]()
    now_s, busy_until_s, todo = 0.0, 0.0, list(arrivals)
    next_s = 0.0
    while todo or waiting:
        while todo and next_s + todo[0][1] / 4 <= now_s:
            index, gap, length = todo.pop(0)
            next_s += gap / 4
            waiting.append(window(index, next_s, length))
            scheduler.add(waiting[-1:])
        if now_s >= busy_until_s and (batch := scheduler.next_batch(now_s)):
            busy_until_s = now_s + turns_per_batch / 4
            gone = {id(each) for each in batch.windows}
            left = [each for each in waiting if id(each) not in gone]
            assert len(left) == len(waiting) - len(batch.windows)
            oldest_s = min(each.arrived_s for each in batch.windows)
            assert all(each.arrived_s > oldest_s - MAX_WAIT_S - 1 / 4 for each in left)
            waiting = left
        assert len(waiting) == scheduler.queued_windows
        now_s += 1 / 4
