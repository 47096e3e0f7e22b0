"""The scheduler: no window lost, none doubled, none waiting longer than it must, none in a batch that is too large."""

from __future__ import annotations

from dataclasses import replace

import pytest
from core.building import raw, window_of
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from enricher.core.batching import BatchRules, LengthBucketScheduler
from enricher.records import Batch, InFlight, Window

RULES = BatchRules(bucket_edges=(8, 16, 32), max_batch_tokens=64, max_wait_s=0.1, run_overhead_tokens=4)


def lengths(batch: Batch | None) -> list[int]:
    """Lengths of a batch's windows, in its order."""
    assert batch is not None
    return [window.length_tokens for window in batch.windows]


def scheduler_with(*windows: Window, rules: BatchRules = RULES) -> LengthBucketScheduler:
    """A scheduler in which these windows wait."""
    scheduler = LengthBucketScheduler(rules)
    scheduler.add(windows)
    return scheduler


class AnyTraffic(RuleBasedStateMachine):
    """Windows of any length arrive at any time, some are forgotten, and batches are taken whenever one is due."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.waiting: dict[int, Window] = {}
        self.scheduler = LengthBucketScheduler(RULES)
        self.rules_ = RULES

    @initialize(
        tokens=st.integers(16, 200), max_wait_s=st.sampled_from([0.0, 0.05, 0.1, 0.7]), overhead=st.integers(0, 40)
    )
    def set_up(self, tokens: int, max_wait_s: float, overhead: int) -> None:
        """Any rules."""
        self.rules_ = replace(RULES, max_batch_tokens=tokens, max_wait_s=max_wait_s, run_overhead_tokens=overhead)
        self.scheduler = LengthBucketScheduler(self.rules_)

    @rule(sizes=st.lists(st.integers(1, 80), min_size=1, max_size=6), pause_s=st.floats(0, 0.3))
    def arrive(self, sizes: list[int], pause_s: float) -> None:
        """Time passes with a batch taken at each due time, then the windows of an article come."""
        self.wait(pause_s)
        ticket = InFlight(raw(0), self.now_s)
        windows = [window_of(size, self.now_s, ticket) for size in sizes]
        self.scheduler.add(windows)
        self.waiting |= {id(window): window for window in windows}

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

    @rule()
    def flush(self) -> None:
        """Everything is wanted now."""
        while batch := self.scheduler.next_batch(self.now_s, flush=True):
            self.took(batch)
        assert self.waiting == {}

    @rule(data=st.data())
    def forget(self, data: st.DataObject) -> None:
        """An article is forgotten: its windows go, all others stay."""
        if not self.waiting:
            return
        ticket = data.draw(st.sampled_from(list(self.waiting.values()))).ticket
        ticket.forgotten = True
        kept = {key: window for key, window in self.waiting.items() if window.ticket is not ticket}
        assert len(self.waiting) - len(kept) == self.scheduler.drop_forgotten()
        self.waiting = kept

    def took(self, batch: Batch) -> None:
        """A batch was given: check all that it must be."""
        assert batch.padded_tokens <= self.rules_.max_batch_tokens or len(batch.windows) == 1
        for window in batch.windows:
            assert self.waiting.pop(id(window)) is window, "lost, doubled or made up"
            assert self.now_s <= window.arrived_s + self.rules_.max_wait_s, "waited for too long"

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
TestAnyTraffic.settings = settings(max_examples=200, stateful_step_count=30, deadline=None)


def test_a_batch_is_due_when_its_oldest_window_has_waited() -> None:
    """Not a moment before, and the windows that came later go along."""
    scheduler = scheduler_with(window_of(8, 0.0), window_of(7, 0.09))
    assert scheduler.next_batch(0.0999) is None
    assert [8, 7] == lengths(scheduler.next_batch(0.1))


def test_the_timer_does_not_start_again_when_a_window_is_added() -> None:
    """A trickle of windows cannot put the first one off."""
    scheduler = scheduler_with(window_of(8, 0.0))
    for step in range(1, 10):
        scheduler.add([window_of(8, step / 100)])
        assert scheduler.next_due_s() == (0.1 if step < 7 else 0.0)


@pytest.mark.parametrize(("arrived_s", "max_wait_s"), [(0.1, 0.2), (1.1, 0.7), (3e6 + 0.1, 0.05)])
def test_what_is_due_at_a_time_is_given_at_that_time(arrived_s: float, max_wait_s: float) -> None:
    """To the last bit: otherwise the loop would wake, find nothing, and wait for no time at all, again and again."""
    scheduler = scheduler_with(window_of(8, arrived_s), rules=replace(RULES, max_wait_s=max_wait_s))
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
    """With 40 of 64 tokens used there is no room for a second window of its bucket, so there is nothing to wait for."""
    assert [40] == lengths(scheduler_with(window_of(40, 5.0)).next_batch(5.0))


def test_a_window_above_the_budget_goes_alone() -> None:
    """The only batch that may be larger than allowed has one window."""
    scheduler = scheduler_with(window_of(100, 0.0), window_of(100, 0.0))
    assert [100] == lengths(scheduler.next_batch(0.0))
    assert [100] == lengths(scheduler.next_batch(0.0))
    assert scheduler.next_batch(10.0) is None


def test_of_several_ready_buckets_the_one_with_the_oldest_head_goes_first() -> None:
    """A full bucket does not overtake a window that has waited longer and is due."""
    due, full = window_of(30, 0.0), [window_of(8, 0.05) for _ in range(8)]
    scheduler = scheduler_with(due, *full, rules=replace(RULES, run_overhead_tokens=0))
    assert [30] == lengths(scheduler.next_batch(0.1))
    assert [8] * 8 == lengths(scheduler.next_batch(0.1))


def test_a_batch_that_is_due_takes_shorter_windows_along_where_that_is_cheaper() -> None:
    """Padding 14 to 18 costs 4 tokens, as a run of its own would: it comes along. Padding 13 would cost 5: it stays."""
    scheduler = scheduler_with(window_of(18, 0.0), window_of(14, 0.05), window_of(13, 0.06))
    assert [18, 14] == lengths(scheduler.next_batch(0.1))
    assert scheduler.queued_windows == 1


def test_the_next_shorter_windows_come_along_first() -> None:
    """Where there is room for one more, it goes to the window that needs the least padding."""
    rules = replace(RULES, run_overhead_tokens=30)
    scheduler = scheduler_with(window_of(30, 0.0), window_of(7, 0.01), window_of(15, 0.02), rules=rules)
    assert [30, 15] == lengths(scheduler.next_batch(0.1))


def test_a_full_batch_has_no_room_for_shorter_windows() -> None:
    """Topping up keeps the budget."""
    scheduler = scheduler_with(window_of(32, 0.0), window_of(32, 0.0), window_of(31, 0.0), window_of(15, 0.0))
    assert [32, 32] == lengths(scheduler.next_batch(0.0))


def test_windows_of_one_bucket_go_in_the_order_of_their_arrival() -> None:
    """First come, first served."""
    windows = [window_of(16, index / 1000) for index in range(10)]
    scheduler = scheduler_with(*windows)
    taken = [window for _ in range(3) for window in (scheduler.next_batch(1.0) or Batch(())).windows]
    assert windows == taken


def test_nothing_is_due_where_nothing_waits() -> None:
    """An empty scheduler has no due time and no batch."""
    assert scheduler_with().next_due_s() is None
    assert scheduler_with().next_batch(1e9, flush=True) is None


@pytest.mark.parametrize("edges", [(), (8, 8), (16, 8)])
def test_bucket_edges_must_grow(edges: tuple[int, ...]) -> None:
    """Anything else is a bug of the caller."""
    with pytest.raises(AssertionError):
        replace(RULES, bucket_edges=edges)
