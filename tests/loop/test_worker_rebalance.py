"""Partitions come and go: what is ready is published in time, the rest is the next owner's."""

from __future__ import annotations

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


def test_revoked_partitions_publish_what_is_ready_and_forget_the_rest() -> None:
    """The finished head goes out in one last transaction; what is with the device is left to the next owner."""
    world, process = world_with_one_worker()
    world.put(INVALID, INVALID, SHORT, INVALID, partition=0)
    world.put(INVALID, INVALID, SHORT, INVALID, partition=1)
    world.steps(process, until=lambda: process.engine.busy > 0)
    process.engine.hangs = True
    other = world.start("worker-1").joined()
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
    world.start("worker-1").joined()
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
    world.start("worker-1").joined()
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
    process.worker.pacing.cadence = Cadence(0.25, share=0.0, now_s=0.0)
    world.steps(process, until=world.done)


@pytest.mark.parametrize(("step", "visit"), [("begin", 2), ("produce", 1), ("committed", 2)])
def test_a_partition_is_given_up_also_if_its_last_transaction_fails(step: str, visit: int) -> None:
    """The rest is rewound; whether it was committed is read from the log. The first transaction counts the attempts."""
    world, process = world_with_one_worker(fault=Faults(step, TransactionTrouble(step), visit))
    world.put(*[INVALID] * 4, partition=0)
    world.put(*[INVALID] * 4, partition=1)
    process.worker.step()
    assert process.counters.recoveries == 0
    other = world.start("worker-1").joined()
    process.worker.step()
    assert process.counters.recoveries == 1
    assert len(process.tracker.partitions) == 1
    process.worker.pacing.cadence = Cadence(0.25, share=0.0, now_s=0.0)
    world.steps(process, other, until=world.done)
