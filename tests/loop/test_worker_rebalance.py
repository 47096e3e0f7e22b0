"""Partitions come and go: what is ready is published in time, the rest is the next owner's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from loop.faults import Fault, Faults, no_fault
from loop.world import INPUT, INVALID, LIMITS, LONG, SHORT, Process, World

from enricher.errors import TransactionTrouble
from enricher.worker.records import Partition
from enricher.worker.rules.load import Cadence

FIRST, SECOND = Partition(INPUT, 0), Partition(INPUT, 1)


def world_with_one_worker(fault: Fault = no_fault) -> tuple[World, Process]:
    """A worker with both partitions that publishes only when it must."""
    world = World()
    process = world.start(fault=fault, limits=replace(LIMITS, publish_interval_s=1e9))
    process.worker.pacing.cadence.note_try(0.0)
    process.source.open(process.worker)
    process.worker.step()
    return world, process


def publish_from_now_on(process: Process) -> None:
    """End of the silence."""
    process.worker.pacing.cadence = Cadence(0.25, share=0.0, now_s=0.0)


def join(world: World, name: str = "worker-1") -> Process:
    """A second worker joins the group."""
    return world.start(name).joined()


def test_revoked_partitions_publish_what_is_ready_and_forget_the_rest() -> None:
    """The finished head goes out in one last transaction; what is with the device is left to the next owner."""
    world, process = world_with_one_worker()
    world.put(INVALID, INVALID, SHORT, INVALID, partition=0)
    world.put(INVALID, INVALID, SHORT, INVALID, partition=1)
    world.steps(process, until=lambda: process.engine.busy > 0)
    process.engine.hangs = True
    other = join(world)
    world.steps(process, until=lambda: len(process.tracker.partitions) == 1)
    assert world.log.committed == {FIRST: 2, SECOND: 2}
    assert process.counters.forgotten == 2
    assert process.tracker.in_flight == 2
    assert process.intake.scheduler.queued_windows == 0
    other.worker.step()
    assert {*process.tracker.partitions, *other.tracker.partitions} == {FIRST, SECOND}


def test_a_batch_back_in_time_is_published_with_the_revoked_partition() -> None:
    """Results that lie with the engine are collected first, so that no finished work is thrown away."""
    world, process = world_with_one_worker()
    world.put(SHORT, partition=0)
    world.put(SHORT, partition=1)
    world.steps(process, until=lambda: process.engine.busy > 0)
    world.clock.sleep(1.0)
    join(world)
    process.worker.step()
    assert world.log.committed == {FIRST: 1, SECOND: 1}
    assert process.counters.forgotten == 0


def test_queued_windows_of_a_partition_that_is_gone_are_dropped() -> None:
    """The device has better things to do than what the next owner will do again."""
    world, process = world_with_one_worker()
    process.engine.hangs = True
    world.put(*[LONG] * 6, partition=0)
    world.put(*[LONG] * 6, partition=1)
    world.steps(process, until=lambda: process.engine.capacity == 0 and not process.intake.busy)
    queued = process.intake.scheduler.queued_windows
    join(world)
    world.steps(process, until=lambda: len(process.tracker.partitions) == 1)
    assert 0 < process.intake.scheduler.queued_windows < queued
    process.source.expel()
    process.worker.step()
    assert process.intake.scheduler.queued_windows == 0


def test_tokens_of_a_partition_that_is_gone_are_dropped() -> None:
    """What comes back from the tokenizer too late is not even queued."""
    world, process = world_with_one_worker()
    world.put(*[LONG] * 6)
    world.steps(process, until=lambda: process.tokenizer.busy > 0)
    taken = [ticket for tickets in process.tokenizer.submitted for ticket in tickets]
    process.source.expel()
    process.worker.step()
    world.clock.sleep(1.0)
    assert taken
    assert all(ticket.forgotten for ticket in taken)
    process.worker.intake.advance(world.clock(), process.worker.pacing.may_decode)
    assert all(ticket.tokens is None for ticket in taken)


def test_lost_partitions_publish_nothing() -> None:
    """A worker that was thrown out of the group publishes none of what it finished, and takes its place again."""
    world, process = world_with_one_worker()
    world.put(INVALID, INVALID)
    process.worker.step()
    assert process.tracker.publishable()
    process.source.expel()
    process.worker.step()
    assert process.counters.forgotten == 2
    assert world.log.committed == {FIRST: 0}
    publish_from_now_on(process)
    world.steps(process, until=world.done)


@pytest.mark.parametrize("step", ["begin", "produce", "send_offsets", "commit", "committed"])
def test_trouble_in_the_last_transaction_before_revocation_loses_nothing(step: str) -> None:
    """The partition is given up all the same, the rest is rewound; whether it was committed is read from the log."""
    world, process = world_with_one_worker(fault=Faults(step, TransactionTrouble(step), 1))
    world.put(*[INVALID] * 4, partition=0)
    world.put(*[INVALID] * 4, partition=1)
    process.worker.step()
    other = join(world)
    process.worker.step()
    assert process.counters.recoveries == 1
    assert len(process.tracker.partitions) == 1
    publish_from_now_on(process)
    world.steps(process, other, until=world.done)


class Meets:
    """Something happens to the group while offsets are under way to it, the given number of times."""

    def __init__(self) -> None:
        self.happens: Callable[[], object] = lambda: None
        self.times = 0

    def __call__(self, step: str) -> None:
        """Be asked before each step."""
        if step == "offsets_under_way" and self.times:
            self.times -= 1
            self.happens()


def world_with_finished_articles(fault: Meets) -> tuple[World, Process, list[Process]]:
    """A worker that will publish two articles, and has two more in flight; `fault` makes others join, which are returned."""
    world, process = world_with_one_worker(fault)
    others: list[Process] = []
    fault.happens = lambda: others.append(join(world, f"worker-{len(others) + 1}"))
    world.put(INVALID, SHORT, partition=0)
    world.put(INVALID, SHORT, partition=1)
    process.worker.step()
    publish_from_now_on(process)
    return world, process, others


@pytest.mark.parametrize("times", [1, 2])
def test_a_transaction_met_by_a_rebalance_is_made_again_without_recovery(times: int) -> None:
    """The worker was a member all the time: what it finished is published once, and nothing in flight is forgotten."""
    fault = Meets()
    world, process, others = world_with_finished_articles(fault)
    fault.times = times
    process.publish()
    assert world.log.committed == {FIRST: 1, SECOND: 1}
    assert len(others) == process.sink.repeated == times
    assert process.counters.forgotten == 0
    world.steps(process, *others, until=world.done)
    assert sum(each.counters.recoveries for each in world.started) == 0


def test_a_rebalance_at_every_try_ends_in_a_recovery() -> None:
    """The tries are bounded, because no poll may come in between; what was in flight is read again."""
    fault = Meets()
    world, process, others = world_with_finished_articles(fault)
    fault.times = 3
    process.worker.step()
    assert len(others) == 3
    assert process.counters.recoveries == 1
    world.steps(process, *others, until=world.done)


def test_a_worker_expelled_while_offsets_are_sent_does_not_try_again() -> None:
    """Its partitions may be another one's already, who has read from the offset before."""
    fault = Meets()
    world, process, _ = world_with_finished_articles(fault)
    fault.happens, fault.times = process.source.expel, 1
    process.worker.step()
    assert process.sink.repeated == 0
    assert process.counters.recoveries == 1
    world.steps(process, until=world.done)
