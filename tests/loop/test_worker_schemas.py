"""Articles whose schema is not here yet: they wait, and nothing else does, until the limits are reached."""

from __future__ import annotations

from dataclasses import replace

import pytest
from loop.fake_clock import TICK_S
from loop.fake_model import article_value
from loop.fake_schemas import with_schema
from loop.fake_sink import DEAD_LETTERS
from loop.world import INPUT, LIMITS, SHORT, Process, World

from enricher.errors import Stalled
from enricher.worker.loop import queues
from enricher.worker.loop.pacing import LoopLimits
from enricher.worker.records import Mark, Partition

NEEDY = with_schema("a", SHORT)
FIRST = Partition(INPUT, 0)


def started(world: World, limits: LoopLimits = LIMITS, *, until_caught_up: bool = False) -> Process:
    """One worker that has joined the group; the registry is away."""
    world.registry.away = True
    return world.start(limits=limits, until_caught_up=until_caught_up).joined()


def wait(world: World, process: Process, seconds: float) -> int:
    """Let time pass; returns how many turns the worker made."""
    until_s = world.clock() + seconds
    return world.steps(process, until=lambda: world.clock() >= until_s, at_most=100_000)


def test_a_registry_away_for_ten_minutes_is_no_stall_and_no_dead_letter() -> None:
    """The worker waits, and goes on by itself."""
    world = World()
    world.put(NEEDY)
    process = started(world, replace(LIMITS, idle_wait_s=8.0))
    wait(world, process, 600)
    assert (1, []) == (process.intake.waiting_articles, world.outputs(DEAD_LETTERS))
    world.registry.away = False
    world.steps(process, until=world.done)
    assert 1 == len(world.outputs())


def test_while_a_ticket_waits_the_loop_turns_no_more_than_an_idle_one() -> None:
    """It waits in the poll, and takes what arrives there at once."""
    world = World()
    process = started(world)
    world.put(NEEDY)
    world.steps(process, until=lambda: process.intake.waiting_articles == 1)
    turns = wait(world, process, 60)
    assert turns <= 60 / LIMITS.idle_wait_s + 2
    began_s = world.clock()
    world.clock.after(5 * TICK_S, lambda: world.put(SHORT, partition=1))
    process.worker.step()
    assert process.counters.read == 2
    assert world.clock() <= began_s + 8 * TICK_S


@pytest.mark.parametrize("behind", [NEEDY, SHORT, with_schema("b", SHORT)])
def test_a_partition_whose_articles_wait_leaves_room_for_the_others(behind: bytes) -> None:
    """It is not read on, whatever is behind its first article. Nothing is lost or reordered."""
    world = World(partitions=3)
    world.put(NEEDY, *[behind] * 200)
    process = started(world)
    process.intake.chars_per_call = 1_000_000  # so that one poll could take all that may be in flight
    wait(world, process, 5)
    assert {FIRST} == process.source.held
    world.put(*[SHORT] * 200, partition=1)
    world.steps(process, until=lambda: len(world.outputs(partition=1)) == 200)
    assert process.tracker.in_flight <= LIMITS.max_in_flight // 2
    world.registry.away = False
    world.steps(process, until=world.done, at_most=20_000)
    assert (201, set()) == (len(world.outputs()), process.source.held)


def test_a_partition_that_waits_shows_its_lag_and_its_age() -> None:
    """Also while it is held, when nothing of it is read; the age grows, and one schema is wanted."""
    world = World()
    world.put(*[NEEDY] * 100)
    process = started(world)
    wait(world, process, 5)
    process.worker.snapshots.epoch_clock = world.clock
    before = process.worker.snapshots.read()
    wait(world, process, 100)
    seen = process.worker.snapshots.read()
    assert (100, {FIRST}) == (seen.lags[FIRST], process.source.held)
    assert seen.waiting == {FIRST: seen.waiting_articles}
    assert seen.oldest_age_s - before.oldest_age_s == pytest.approx(100, abs=1)
    assert 1 == (seen.schemas.wanted if seen.schemas else None)


def test_a_worker_that_ends_at_the_end_does_not_wait_for_what_came_later() -> None:
    """Else it would never end at a busy topic, of which there is always something in flight."""
    world = World()
    world.registry.away = True
    world.put(*[SHORT] * 20)
    process = world.start(until_caught_up=True)
    world.clock.after(TICK_S, lambda: world.put(NEEDY, partition=1))
    world.clock.after(60, process.worker.stop)
    process.worker.run()
    assert 1 == process.counters.forgotten
    assert world.clock() < 60
    assert (20, 0) == (len(world.outputs()), len(world.outputs(partition=1)))


def test_a_schema_nobody_waits_for_is_abandoned() -> None:
    """After a rebalance there is nothing to fetch for, and nothing in flight here."""
    world = World()
    world.put(NEEDY)
    process = started(world)
    wait(world, process, 1)
    assert 1 == process.schemas.state().wanted
    process.worker.lost(list(process.tracker.partitions))
    assert (0, 0) == (process.schemas.state().wanted, process.intake.waiting_articles)


def test_a_long_article_that_waits_holds_back_no_other_long_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is first again when its schema is here, in its own queue."""
    monkeypatch.setattr(queues, "LONG_BYTES", 1_000)
    dense = article_value("title", "word " * 500)
    world = World()
    world.put(with_schema("a", dense), partition=0)
    world.put(dense, partition=1)
    process = started(world)
    world.steps(process, until=lambda: len(world.outputs(partition=1)) == 1, at_most=100_000)
    assert 1 == process.intake.waiting_articles
    world.registry.away = False
    world.steps(process, until=world.done, at_most=100_000)
    assert (1, False) == (len(world.outputs()), process.intake.busy)


def test_processes_that_end_while_a_record_waits_blame_it_for_nothing() -> None:
    """However many, and also if the partition is suspect: its mark is the one with which each came."""
    for mark in (Mark(), Mark(LIMITS.max_deaths_at_offset)):
        world = World(partitions=1)
        world.put(NEEDY, SHORT)
        world.log.committed[FIRST], world.log.marks[FIRST] = 0, mark
        for _ in range(3 * LIMITS.max_deaths_at_offset):
            process = started(world)
            wait(world, process, 5)
            assert (1, mark) == (process.intake.waiting_articles, world.log.marks[FIRST])
            process.source.expel()
        process = started(world)
        world.registry.away = False
        world.steps(process, until=world.done)
        assert (2, []) == (len(world.outputs()), world.outputs(DEAD_LETTERS))


def test_while_a_suspect_record_waits_other_partitions_go_one_at_a_time() -> None:
    """Those behind it are not read, and when the schema is here all are read, alone."""
    world = World()
    world.put(NEEDY, SHORT, None, SHORT)
    world.put(*[SHORT] * 20, partition=1)
    world.log.committed[FIRST], world.log.marks[FIRST] = 0, Mark(LIMITS.max_deaths_at_offset)
    process = started(world)
    world.steps(process, until=lambda: len(world.outputs(partition=1)) == 20)
    wait(world, process, 5)
    assert (1, 1) == (process.tracker.in_flight, process.intake.waiting_articles)
    assert (0, Mark(LIMITS.max_deaths_at_offset)) == (world.log.committed[FIRST], world.log.marks[FIRST])
    assert process.worker.pacing.attempts.suspects
    world.registry.away = False
    world.steps(process, until=lambda: process.intake.waiting_articles == 0)
    while not world.done():
        process.worker.step()
        assert process.tracker.in_flight <= 1 or not process.worker.pacing.attempts.suspects
    assert (4, 20) == (len(world.outputs()), len(world.outputs(partition=1)))


def test_an_attempt_is_counted_again_when_the_schema_is_here() -> None:
    """A record that waited may kill the process when it is read."""
    world = World(partitions=1)
    world.put(NEEDY)
    process = started(world)
    wait(world, process, 5)
    assert Mark() == world.log.marks[FIRST]
    process.engine.hangs = True
    world.registry.away = False
    world.steps(process, until=lambda: process.engine.busy > 0)
    assert Mark(1) == world.log.marks[FIRST]


def test_a_ticket_that_is_lost_is_a_stall_although_others_wait() -> None:
    """Waiting for a schema excuses the tickets that wait, and no other."""
    world = World()
    world.put(NEEDY, partition=0)
    world.put(SHORT, partition=1)
    process = started(world)
    process.tokenizer.loses = True
    with pytest.raises(Stalled, match="in flight"):
        wait(world, process, 5)
