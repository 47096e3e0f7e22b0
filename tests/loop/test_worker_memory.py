"""A device that runs out of memory: smaller batches from then on, never larger ones again, and nothing lost."""

from __future__ import annotations

import logging
from operator import attrgetter

import pytest
from loop.fake_model import POISON_TOKEN, with_room_for
from loop.fake_sink import DEAD_LETTERS
from loop.world import POISONED, RULES, SHORT, World
from rules.building import window_of

from enricher.worker.inference.run.engine import run_in_halves
from enricher.worker.loop.pacing import Budget
from enricher.worker.records import Batch, BatchResult
from enricher.worker.rules.batching import BatchRules, LengthBucketScheduler
from enricher.worker.rules.packing import ArrivalScheduler

ROOM_TOKENS = 20
CONFIGURED = 8192
PACKED_RULES = BatchRules(bucket_edges=(512,), max_batch_tokens=CONFIGURED, max_wait_s=0.1, run_overhead_tokens=0)


def test_running_out_of_memory_costs_no_article_and_makes_batches_smaller(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Full batches have 40 tokens and the device's memory fits 20: after the first, no batch is larger."""
    world = World(partitions=1)
    process = world.start(infer=with_room_for(ROOM_TOKENS)).joined()
    world.put(*[SHORT] * 24)
    world.steps(process, until=world.done)
    under_way = len(process.engine.submitted)
    assert max(batch.padded_tokens for batch in process.engine.submitted) > ROOM_TOKENS
    world.put(*[SHORT] * 200)
    world.steps(process, until=world.done)
    assert len(world.outputs()) == 224
    assert len(world.outputs(DEAD_LETTERS, 0)) == 0
    assert (
        max(batch.padded_tokens for batch in process.engine.submitted[under_way:])
        <= ROOM_TOKENS
        < RULES.max_batch_tokens
    )
    assert 1 <= process.counters.out_of_memory <= under_way
    warnings = [record for record in caplog.records if "out of memory" in record.message]
    assert len(warnings) == 1


def no_room_for_poison(batch: Batch) -> BatchResult:
    """A device whose memory fits any batch but those with a poisoned window."""

    def attempt(batch: Batch) -> BatchResult:
        poisoned = any((window.ids == POISON_TOKEN).any() for window in batch.windows)
        return with_room_for(0 if poisoned else RULES.max_batch_tokens)(batch)

    return run_in_halves(attempt, batch, tokens_of=attrgetter("padded_tokens"))


def test_an_article_that_never_fits_is_one_dead_letter_and_lowers_nothing() -> None:
    """Its window fails alone, so the size of its batch was not the cause; the others are all answered."""
    world = World(partitions=1)
    process = world.start(infer=no_room_for_poison).joined()
    for _ in range(12):
        world.put(*[SHORT] * 20, POISONED, *[SHORT] * 20)
        world.steps(process, until=world.done, at_most=20_000)
    assert process.worker.snapshots.read().budget_tokens == RULES.max_batch_tokens
    assert (480, 12) == (len(world.outputs()), len(world.outputs(DEAD_LETTERS)))
    assert process.counters.out_of_memory > 0


class Device:
    """A device with room for so many tokens, and a budget that hears of every batch."""

    def __init__(self, room_tokens: int) -> None:
        self.scheduler = ArrivalScheduler(PACKED_RULES)
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
    assert LengthBucketScheduler(PACKED_RULES).tokens_of(batch) == 300
    assert ArrivalScheduler(PACKED_RULES).tokens_of(batch) == 120
