"""Very long articles do not keep others waiting: of other partitions, and of their own as far as order allows."""

from __future__ import annotations

import pytest
from loop.fake_model import article_value
from loop.world import SHORT, World

from enricher.worker.loop import queues

DENSE = article_value("title", "word " * 1_500)


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "LONG_BYTES", 1_000)
    monkeypatch.setattr(queues, "IN_PROGRESS_BYTES", 20_000)


@pytest.mark.parametrize("seed", range(3))
def test_other_partitions_are_done_while_long_articles_are_in_progress(seed: int) -> None:
    """Though these were there first, and each is many times what all queues hold."""
    world = World(seed)
    world.put(*[DENSE] * 4, partition=0)
    world.put(*[SHORT] * 40, partition=1)
    process = world.start().joined()
    world.steps(process, until=lambda: len(world.outputs(partition=1)) == 40, at_most=20_000)
    assert len(world.outputs(partition=0)) < 4
    world.steps(process, until=world.done, at_most=100_000)
    assert (len(world.outputs(partition=0)), process.intake.busy) == (4, False)


def test_long_articles_go_on_while_others_keep_the_queues_full() -> None:
    """Articles that are let past do not starve them."""
    world = World()
    world.put(DENSE, partition=0)
    world.put(*[SHORT] * 2_000, partition=1)
    process = world.start().joined()
    world.steps(process, until=lambda: len(world.outputs(partition=0)) == 1, at_most=100_000)
    assert len(world.outputs(partition=1)) < 2_000


@pytest.mark.parametrize("turns", [1, 3, 10, 30, 100, 300])
def test_long_articles_survive_being_forgotten_at_any_time(turns: int) -> None:
    """Waiting, with the tokenizer, held or with the engine: who is expelled reads them again."""
    world = World()
    world.put(SHORT, DENSE, DENSE, DENSE, SHORT, partition=0)
    process = world.start().joined()
    for _ in range(turns):
        process.worker.step()
    process.source.expel()
    world.steps(process, until=world.done, at_most=100_000)
    assert len(world.outputs()) == 5
