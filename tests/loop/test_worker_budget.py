"""The budget of batches: lower after memory ran out, and never higher again."""

from __future__ import annotations

import logging

import pytest
from rules.building import window_of

from enricher.worker.loop.pacing import Budget
from enricher.worker.records import Batch, BatchResult
from enricher.worker.rules.batching import BatchRules, LengthBucketScheduler
from enricher.worker.rules.packing import ArrivalScheduler

CONFIGURED = 8192
RULES = BatchRules(bucket_edges=(512,), max_batch_tokens=CONFIGURED, max_wait_s=0.1, run_overhead_tokens=0)


class Device:
    """A device with room for so many tokens, and a budget that hears of every batch."""

    def __init__(self, room_tokens: int) -> None:
        self.scheduler = ArrivalScheduler(RULES)
        self.budget = Budget(self.scheduler)
        self.room_tokens = room_tokens

    @property
    def tokens(self) -> int:
        """The budget."""
        return self.scheduler.max_batch_tokens

    def run(self) -> bool:
        """Run a full batch of two windows; of one that does not fit, some half of a half does."""
        asked = fits = self.tokens
        while fits > self.room_tokens:
            fits //= 2
        return self.budget.note(result(asked - 1, 1, fits_tokens=fits if fits < asked else None))


def result(*lengths: int, fits_tokens: int | None = None) -> BatchResult:
    """A batch of windows that came back from the device."""
    return BatchResult(Batch(tuple(window_of(length, 0.0) for length in lengths)), [], fits_tokens=fits_tokens)


def test_it_falls_to_what_fitted_and_stays_there(caplog: pytest.LogCaptureFixture) -> None:
    """Also if a neighbour has given the memory back: a restart begins with the configured one. The fall is logged."""
    device = Device(room_tokens=5_000)
    with caplog.at_level(logging.WARNING, logger="enricher.worker.loop.pacing"):
        assert device.run()
    assert "at most 4096 from now on" in caplog.text
    device.room_tokens = CONFIGURED
    assert not any(device.run() for _ in range(100))
    assert device.tokens == 4_096


def test_memory_that_shrinks_lowers_it_further() -> None:
    """By half with each batch that does not fit: a neighbour that has all of it for a moment costs no more."""
    device = Device(room_tokens=5_000)
    assert device.run()
    device.room_tokens = 1_100
    assert [device.run() for _ in range(3)] == [True, True, False]
    assert device.tokens == 1_024


def test_a_batch_of_an_older_budget_lowers_nothing() -> None:
    """Two threads run out of memory with the same large batches; the second must not halve the budget again."""
    device = Device(room_tokens=5_000)
    device.run()
    assert device.budget.note(result(CONFIGURED - 1, 1, fits_tokens=1_000))
    assert device.tokens == 4_096


def test_a_window_that_does_not_fit_alone_changes_nothing() -> None:
    """No budget makes that batch smaller."""
    device = Device(room_tokens=5_000)
    assert not device.budget.note(result(512, fits_tokens=512))
    assert device.tokens == CONFIGURED


def test_it_is_at_least_one_token() -> None:
    """Also where not a single window fitted."""
    device = Device(room_tokens=CONFIGURED)
    while device.tokens > 1:
        before = device.tokens
        device.budget.note(result(before - 1, 1, fits_tokens=1))
        assert device.tokens < before
    assert not device.budget.note(result(1, fits_tokens=1))
    assert device.tokens == 1


def test_padding_counts_where_the_device_computes_it() -> None:
    """Three windows of 10, 10 and 100 tokens take 300 of a padded budget and 120 of a packed one."""
    batch = result(10, 10, 100).batch
    assert LengthBucketScheduler(RULES).tokens_of(batch) == 300
    assert ArrivalScheduler(RULES).tokens_of(batch) == 120
