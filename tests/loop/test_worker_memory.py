"""A device that runs out of memory: smaller batches from then on, and nothing lost."""

from __future__ import annotations

from operator import attrgetter

import pytest
from loop.fake_model import POISON_TOKEN, with_room_for
from loop.fake_sink import DEAD_LETTERS
from loop.world import POISONED, RULES, SHORT, Process, World

from enricher.worker.inference.run.memory import run_in_halves
from enricher.worker.records import Batch, BatchResult

ROOM_TOKENS = 20


def test_a_batch_that_runs_out_of_memory_costs_no_article_and_later_ones_are_smaller(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Full batches have 40 tokens and the device's memory fits 20: after the first, no batch is larger."""
    world = World(partitions=1)
    process = world.start(infer=with_room_for(ROOM_TOKENS))
    process.source.open(process.worker)
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


def test_memory_that_shrinks_again_lowers_the_budget_again(caplog: pytest.LogCaptureFixture) -> None:
    """Each step down is said once."""
    world = World(partitions=1)
    process = world.start(infer=with_room_for(ROOM_TOKENS))
    process.source.open(process.worker)
    world.put(*[SHORT] * 100)
    world.steps(process, until=world.done)
    process.engine.run = with_room_for(10)
    world.put(*[SHORT] * 100)
    world.steps(process, until=world.done)
    assert len(world.outputs()) == 200
    assert len([record for record in caplog.records if "out of memory" in record.message]) == 2


def test_enough_memory_changes_nothing() -> None:
    """The control: no step down, no count."""
    world = World(partitions=1)
    process = world.start(infer=with_room_for(RULES.max_batch_tokens))
    process.source.open(process.worker)
    world.put(*[SHORT] * 100)
    world.steps(process, until=world.done)
    assert process.counters.out_of_memory == 0


def budget_of(process: Process) -> int:
    """The tokens that a batch may have now, as the metric has them."""
    return process.worker.snapshots.read().budget_tokens


def no_room_for_poison(batch: Batch) -> BatchResult:
    """A device whose memory fits any batch but those with a poisoned window."""

    def attempt(batch: Batch) -> BatchResult:
        poisoned = any((window.ids == POISON_TOKEN).any() for window in batch.windows)
        return with_room_for(0 if poisoned else RULES.max_batch_tokens)(batch)

    return run_in_halves(attempt, batch, tokens_of=attrgetter("padded_tokens"))


def test_an_article_that_never_fits_is_one_dead_letter_and_lowers_nothing() -> None:
    """Its window fails alone, so the size of its batch was not the cause; the others are all answered."""
    world = World(partitions=1)
    process = world.start(infer=no_room_for_poison)
    process.source.open(process.worker)
    for _ in range(12):
        world.put(*[SHORT] * 20, POISONED, *[SHORT] * 20)
        world.steps(process, until=world.done, at_most=20_000)
    assert budget_of(process) == RULES.max_batch_tokens
    assert (480, 12) == (len(world.outputs()), len(world.outputs(DEAD_LETTERS)))
    assert process.counters.out_of_memory > 0
