"""The budget of batches: lower after memory ran out, and higher again, without trying what failed too often."""

from __future__ import annotations

import logging

import pytest
from rules.building import window_of

from enricher.worker.loop.budget import FIRST_PAUSE_S, LONGEST_PAUSE_S, Budget
from enricher.worker.records import Batch, BatchResult
from enricher.worker.rules.batch_rules import BatchRules
from enricher.worker.rules.batching import LengthBucketScheduler
from enricher.worker.rules.packing import ArrivalScheduler

CONFIGURED = 8192
RULES = BatchRules(bucket_edges=(512,), max_batch_tokens=CONFIGURED, max_wait_s=0.1, run_overhead_tokens=0)


class Device:
    """A device with room for so many tokens, a clock, and a budget that hears of every batch."""

    def __init__(self, room_tokens: int) -> None:
        self.scheduler = ArrivalScheduler(RULES)
        self.budget = Budget(self.scheduler)
        self.room_tokens, self.now_s = room_tokens, 0.0
        self.out_of_memory_s: list[float] = []

    @property
    def tokens(self) -> int:
        """The budget."""
        return self.scheduler.max_batch_tokens

    def run(self, tokens: int | None = None) -> None:
        """Run two windows with so many tokens, or a full batch; of one that does not fit, some half of a half does."""
        asked = fits = self.tokens if tokens is None else tokens
        while fits > self.room_tokens:
            fits //= 2
        if self.budget.note(result(asked - 1, 1, fits_tokens=fits if fits < asked else None), self.now_s):
            self.out_of_memory_s.append(self.now_s)

    def work(self, seconds: float, tokens: int | None = None) -> None:
        """A batch every ten seconds."""
        until_s = self.now_s + seconds
        while self.now_s < until_s:
            self.now_s += 10
            self.run(tokens)


def result(*lengths: int, fits_tokens: int | None = None) -> BatchResult:
    """A batch of windows that came back from the device."""
    return BatchResult(Batch(tuple(window_of(length, 0.0) for length in lengths)), [], fits_tokens=fits_tokens)


def test_it_rises_to_the_configured_one_in_steps_of_a_quarter(caplog: pytest.LogCaptureFixture) -> None:
    """A minute each, after a neighbour has given the memory back; every change is logged once."""
    device = Device(room_tokens=5_000)
    device.run()
    assert device.tokens == 4_096
    device.room_tokens = CONFIGURED
    seen = []
    with caplog.at_level(logging.INFO, logger="enricher.worker.loop.budget"):
        for _ in range(5):
            device.work(FIRST_PAUSE_S)
            seen.append(device.tokens)
    assert [5_120, 6_400, 8_000, 8_192, 8_192] == seen
    assert ["5120", "6400", "8000", "8192"] == [
        each.getMessage().partition("at most ")[2].split()[0] for each in caplog.records if each.levelno == logging.INFO
    ]
    assert [0.0] == device.out_of_memory_s


def test_far_below_what_failed_it_doubles() -> None:
    """From 8 tokens it takes a quarter of an hour, not half of one."""
    device = Device(room_tokens=10)
    device.run()
    assert device.tokens == 8
    device.room_tokens = CONFIGURED
    device.work(9 * FIRST_PAUSE_S)
    assert device.tokens == CONFIGURED / 2
    device.work(4 * FIRST_PAUSE_S)
    assert device.tokens == CONFIGURED


def test_a_step_that_was_too_large_is_taken_back_and_the_next_waits_twice_as_long() -> None:
    """With room for 5,500 tokens: 5,120 stays, and 6,400 is tried ever more rarely."""
    device = Device(room_tokens=5_500)
    device.work(24 * LONGEST_PAUSE_S)
    assert device.tokens in {5_120, 6_400}
    pauses = [after - before for before, after in zip(device.out_of_memory_s, device.out_of_memory_s[1:], strict=False)]
    assert pauses == sorted(pauses)
    assert LONGEST_PAUSE_S <= pauses[-1] <= LONGEST_PAUSE_S + 20
    assert len(pauses) < 24 + 8


def test_with_traffic_that_fills_no_batch_it_does_not_rise() -> None:
    """A small batch that fits says nothing about larger ones."""
    device = Device(room_tokens=5_000)
    device.run()
    device.work(10 * FIRST_PAUSE_S, tokens=2_000)
    assert device.tokens == 4_096
    device.run()
    assert device.tokens == 5_120


def test_a_batch_of_an_older_budget_lowers_nothing_but_restarts_the_pause() -> None:
    """Two threads run out of memory with the same large batches; the second must not halve the budget again."""
    device = Device(room_tokens=5_000)
    device.run()
    device.now_s = 50.0
    assert device.budget.note(result(CONFIGURED - 1, 1, fits_tokens=1_000), device.now_s)
    assert device.tokens == 4_096
    device.work(FIRST_PAUSE_S - 10)
    assert device.tokens == 4_096
    device.work(10)
    assert device.tokens == 5_120


def test_memory_that_shrinks_below_the_last_good_budget_lowers_it_to_what_fits() -> None:
    """The budget before a step counts only as long as it fits."""
    device = Device(room_tokens=5_500)
    device.work(FIRST_PAUSE_S + 10)
    assert device.tokens == 5_120
    device.room_tokens = 2_000
    device.run()
    assert device.tokens == 4_096
    device.run()
    assert device.tokens == 1_024


def test_a_window_that_does_not_fit_alone_changes_nothing() -> None:
    """No budget makes that batch smaller; and it is no sign that memory is enough."""
    device = Device(room_tokens=5_000)
    assert not device.budget.note(result(512, fits_tokens=512), 0.0)
    assert device.tokens == CONFIGURED
    device.run()
    device.now_s = 2 * FIRST_PAUSE_S
    assert not device.budget.note(result(5_000, fits_tokens=5_000), device.now_s)
    assert device.tokens == 4_096


def test_after_a_long_time_without_trouble_the_pause_is_short_again() -> None:
    """Trouble of yesterday says nothing about today's."""
    device = Device(room_tokens=5_000)
    device.work(LONGEST_PAUSE_S)
    device.room_tokens = CONFIGURED
    device.work(30 * LONGEST_PAUSE_S)
    assert device.tokens == CONFIGURED
    device.room_tokens = 5_000
    device.run()
    device.room_tokens = CONFIGURED
    device.work(FIRST_PAUSE_S)
    assert device.tokens == 5_120


def test_it_never_exceeds_the_configured_one_and_is_at_least_one_token() -> None:
    """Also where not a single window fitted."""
    device = Device(room_tokens=CONFIGURED)
    device.budget.note(result(CONFIGURED - 1, 1, fits_tokens=1), 0.0)
    assert device.tokens == 1
    seen = set()
    for _ in range(40):
        device.work(FIRST_PAUSE_S)
        seen.add(device.tokens)
    assert max(seen) == CONFIGURED


def test_padding_counts_where_the_device_computes_it() -> None:
    """Three windows of 10, 10 and 100 tokens take 300 of a padded budget and 120 of a packed one."""
    batch = result(10, 10, 100).batch
    assert LengthBucketScheduler(RULES).tokens_of(batch) == 300
    assert ArrivalScheduler(RULES).tokens_of(batch) == 120
