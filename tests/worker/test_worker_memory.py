"""A device that runs out of memory: smaller batches from then on, and nothing lost."""

from __future__ import annotations

import pytest
from worker.fake_model import with_room_for
from worker.fake_sink import DEAD_LETTERS
from worker.world import RULES, SHORT, World

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
    """Each step down is said once; what is smaller already stays."""
    world = World(partitions=1)
    process = world.start(infer=with_room_for(ROOM_TOKENS))
    process.source.open(process.worker)
    world.put(*[SHORT] * 100)
    world.steps(process, until=world.done)
    process.engine._run = with_room_for(10)
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
