"""A device that runs out of memory: smaller batches, larger ones again when memory is enough, and nothing lost."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from operator import attrgetter

import pytest
from loop.fake_model import POISON_TOKEN, with_room_for
from loop.fake_sink import DEAD_LETTERS
from loop.test_worker_simulation import Simulation
from loop.world import POISONED, RULES, SHORT, Process, World
from support.seeds import seeds

from enricher.worker.inference.run.memory import run_in_halves
from enricher.worker.loop import budget
from enricher.worker.loop.budget import FIRST_PAUSE_S
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


def work(world: World, process: Process, *values: bytes) -> None:
    """Publish articles and let a minute pass after they are done."""
    world.put(*values)
    world.steps(process, until=world.done, at_most=20_000)
    world.clock.sleep(FIRST_PAUSE_S)


def test_batches_grow_again_when_memory_is_enough(caplog: pytest.LogCaptureFixture) -> None:
    """Up to the configured budget, which the metric shows; both directions are logged, and nothing is lost or doubled."""
    world = World(partitions=1)
    process = world.start(infer=with_room_for(ROOM_TOKENS))
    process.source.open(process.worker)
    with caplog.at_level("INFO", logger="enricher.worker.loop.budget"):
        work(world, process, *[SHORT] * 100)
        assert budget_of(process) == 18  # half of the first batch
        process.engine.run = with_room_for(RULES.max_batch_tokens)
        seen = []
        for _ in range(5):
            work(world, process, *[SHORT] * 100)
            seen.append(budget_of(process))
    assert [22, 27, 33, 40, 40] == seen
    assert (600, 0) == (len(world.outputs()), len(world.outputs(DEAD_LETTERS)))
    kinds = [record.levelname for record in caplog.records if "batches have at most" in record.message]
    assert ["WARNING", "INFO", "INFO", "INFO", "INFO"] == kinds
    assert max(batch.padded_tokens for batch in process.engine.submitted[-20:]) > 33


def no_room_for_poison(batch: Batch) -> BatchResult:
    """A device whose memory fits any batch but those with a poisoned window."""

    def attempt(batch: Batch) -> BatchResult:
        poisoned = any((window.ids == POISON_TOKEN).any() for window in batch.windows)
        return with_room_for(0 if poisoned else RULES.max_batch_tokens)(batch)

    return run_in_halves(attempt, batch, tokens_of=attrgetter("padded_tokens"))


@pytest.mark.slow
def test_an_article_that_never_fits_is_one_dead_letter_however_often_batches_grow() -> None:
    """It lowers the budget of all, which rises again until the next one comes; the others are all answered."""
    world = World(partitions=1)
    process = world.start(infer=no_room_for_poison)
    process.source.open(process.worker)
    budgets = []
    for _ in range(12):
        work(world, process, *[SHORT] * 20, POISONED, *[SHORT] * 20)
        budgets.append(budget_of(process))
    assert any(before < after for before, after in pairwise(budgets))
    assert (480, 12) == (len(world.outputs()), len(world.outputs(DEAD_LETTERS)))
    for _ in range(20):
        work(world, process, *[SHORT] * 40)
    assert budget_of(process) == RULES.max_batch_tokens


@pytest.mark.parametrize("seeds", seeds(quick=6, plain=20, every=200))
def test_whatever_happens_nothing_is_lost_while_the_budget_goes_up_and_down(
    seeds: range, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The simulation's crashes, rebalances and recoveries, in worlds where a budget rises after milliseconds."""
    monkeypatch.setattr(budget, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(budget, "LONGEST_PAUSE_S", 0.1)
    with caplog.at_level("INFO", logger="enricher.worker.loop.budget"):
        for seed in seeds:
            simulation = Simulation(seed)
            simulation.infer = with_room_for(10 + seed % 30, simulation.setup.infer)
            assert simulation.run().found == set(), f"seed {seed}"
    changes = Counter(record.levelname for record in caplog.records if "batches have at most" in record.message)
    assert min(changes["WARNING"], changes["INFO"]) > 4 * len(seeds)
