"""Which ends of a process count as deaths at its records: those of which a record may be the cause."""

from __future__ import annotations

from functools import partial

import pytest
from loop.faults import Fault, Faults
from loop.test_worker_killing_record import FIRST, MAX_DEATHS, killed, lives_until_done
from loop.world import RECOVERY, SHORT, World

from enricher.errors import (
    BrokerError,
    EnricherError,
    Fenced,
    RecoveryExhausted,
    SettingsError,
    Stalled,
    TransactionTrouble,
)
from enricher.worker.records import Mark


def fail_late(world: World) -> None:
    """No broker answers for longer than a recovery may take."""
    world.clock.sleep(RECOVERY.timeout_s + 1)
    raise TransactionTrouble("away")


def ends(world: World, fault: Fault, error: type[EnricherError]) -> None:
    """A process that ends with this error."""
    process = world.start(fault=fault)
    with pytest.raises(error):
        process.worker.run()
    process.source.expel()
    assert world.violations() == []


@pytest.mark.parametrize(
    ("step", "error", "end"),
    [
        ("produce", TransactionTrouble("too few replicas"), RecoveryExhausted),
        ("produce", BrokerError("no right to write"), BrokerError),
        ("commit", BrokerError("no right to write"), BrokerError),
        ("produce", SettingsError("fewer partitions"), SettingsError),
    ],
    ids=["exit 6", "exit 4", "exit 4 at the commit", "exit 2"],
)
@pytest.mark.parametrize(
    "before", [Mark(), Mark(MAX_DEATHS), Mark(MAX_DEATHS + 1, 1)], ids=["first", "suspect", "alone"]
)
def test_an_end_of_which_no_record_can_be_the_cause_is_no_death(
    step: str, error: Exception, end: type[EnricherError], before: Mark
) -> None:
    """However often in a row: the process takes its attempt back while it can still commit offsets."""
    world = World(partitions=1)
    world.put(*[SHORT] * 4)
    world.log.committed[FIRST], world.log.marks[FIRST] = 0, before
    visits = [2] if step == "commit" else []  # the first one is that of the mark
    for _ in range(2 * MAX_DEATHS):
        ends(world, Faults(step, error, *visits), end)
        assert world.log.marks[FIRST] == before
    assert lives_until_done(world) == 1
    assert killed(world) == []


def test_a_silent_partition_is_no_death_of_the_other_partitions_records() -> None:
    """The process ends with code 7, and another partition's records were counted."""
    world = World()
    world.put(*[SHORT] * 4)
    ends(world, Faults("poll", Stalled("silent", undelivered=True), 3), Stalled)
    assert {Mark()} == set(world.log.marks.values())
    ends(world, Faults("poll", Stalled("the model hangs"), 3), Stalled)
    assert Mark(1) == world.log.marks[FIRST]


def test_three_outages_that_end_the_process_blame_no_record() -> None:
    """No broker answers for so long that the attempt stays counted: the next process looks, and finds nothing."""
    world = World(partitions=1)
    world.put(*[SHORT] * 4)
    for count in range(1, MAX_DEATHS + 1):
        process = world.start(fault=Faults("produce", TransactionTrouble("cut off")))
        process.sink.recover = partial(fail_late, world)  # type: ignore[method-assign]
        with pytest.raises(RecoveryExhausted, match="away"):
            process.worker.run()
        process.source.expel()
        assert world.log.marks[FIRST] == Mark(count)
    assert lives_until_done(world) == 1
    assert killed(world) == []
    assert world.violations() == []


def test_a_commit_that_arrived_is_not_taken_back_with_the_attempt() -> None:
    """The process believes that its last transactions failed: the offsets that they committed stay."""
    world = World(partitions=1)
    world.put(*[SHORT] * 4)
    process = world.start(fault=Faults("committed", TransactionTrouble("nobody knows")))
    for number in range(10):
        world.clock.after(number * 0.5, lambda: world.put(SHORT))
    with pytest.raises(RecoveryExhausted):
        process.worker.run()
    process.source.expel()
    assert world.log.committed[FIRST] > 0
    assert world.log.marks[FIRST] == Mark()
    assert world.violations() == []
    assert lives_until_done(world) == 1


def test_a_fenced_process_leaves_its_attempt_counted() -> None:
    """To take it back it would have to fence the newer process of its name."""
    world = World(partitions=1)
    world.put(*[SHORT] * 4)
    fenced = Faults("produce", Fenced("a newer producer"))
    ends(world, fenced, Fenced)
    assert world.log.marks[FIRST] == Mark(1)
    assert fenced.seen["recover"] == 0


def test_an_attempt_that_cannot_be_taken_back_counts() -> None:
    """No broker answers the process any more, which ends all the same, with its own error."""
    world = World(partitions=1)
    world.put(*[SHORT] * 4)
    no_right, away = Faults("produce", BrokerError("no right")), Faults("recover", TransactionTrouble("away"))

    def fault(step: str) -> None:
        no_right(step)
        away(step)

    ends(world, fault, BrokerError)
    assert world.log.marks[FIRST] == Mark(1)
