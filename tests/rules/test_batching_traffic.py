"""The scheduler under any traffic: no window lost, none doubled, none too late, no batch too large."""

from __future__ import annotations

import math
from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from rules.building import raw, window_of
from support.examples import examples

from enricher.worker.records import Batch, Ticket, Window
from enricher.worker.rules.batching import BatchRules, LengthBucketScheduler

RULES = BatchRules(bucket_edges=(8, 16, 32), max_batch_tokens=64, max_wait_s=0.1, run_overhead_tokens=4)


class AnyTraffic(RuleBasedStateMachine):
    """Windows of any length arrive at any time, come back, are forgotten; batches are taken whenever one is due."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.waiting: dict[int, Window] = {}
        self.added_s: dict[int, float] = {}
        self.taken: list[Window] = []
        self.scheduler = LengthBucketScheduler(RULES)
        self.rules_ = RULES
        self.configured_tokens = RULES.max_batch_tokens

    @initialize(
        tokens=st.integers(16, 200),
        max_wait_s=st.sampled_from([0.0, 0.05, 0.1, 0.7]),
        overhead=st.integers(0, 40),
        early=st.sampled_from([0.0, 0.2, 2.0]),
    )
    def set_up(self, tokens: int, max_wait_s: float, overhead: int, early: float) -> None:
        """Any rules."""
        self.rules_ = replace(
            RULES,
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
