"""What others see of a worker: how old its oldest article is, how far it is behind, and where it is in its life."""

from __future__ import annotations

from dataclasses import replace

import pytest
from loop.world import INPUT, World

from enricher.worker.records import Partition, RawRecord, Ticket, Tombstone
from enricher.worker.rules.offsets import OffsetTracker
from enricher.worker.stats import Connection, Unstable

ZERO, ONE = Partition(INPUT, 0), Partition(INPUT, 1)


def ticket(partition: Partition, offset: int, timestamp_s: float | None) -> Ticket:
    """An article that was read, published then."""
    return Ticket(RawRecord(partition, offset, b"k", b"v", (), timestamp_s), 0.0)


def tracker(*tickets: Ticket) -> OffsetTracker:
    """With both partitions, and these in flight."""
    made = OffsetTracker()
    made.assign([ZERO, ONE])
    for each in tickets:
        made.track(each)
    return made


def test_the_oldest_is_the_oldest_head_of_all_partitions() -> None:
    """Behind a head everything is younger or was published out of order; nothing in flight has no age."""
    assert 3.0 == tracker(ticket(ZERO, 0, 5.0), ticket(ONE, 0, 3.0), ticket(ONE, 1, 9.0)).oldest_timestamp_s()
    assert tracker(ticket(ZERO, 0, None)).oldest_timestamp_s() is None
    assert tracker().oldest_timestamp_s() is None


def test_a_partition_that_is_behind_is_as_old_as_its_last_record() -> None:
    """Though nothing of it is in flight: what comes next was published later than what came last."""
    done = ticket(ZERO, 0, 7.0)
    behind = tracker(done)
    done.finish(Tombstone())
    behind.release({})
    assert behind.oldest_timestamp_s() is None
    assert 7.0 == behind.oldest_timestamp_s({ZERO})


def test_a_partition_stands_at_what_was_released_or_its_first_in_flight() -> None:
    """Unknown where nothing was read yet."""
    done, waiting = ticket(ZERO, 4, 1.0), ticket(ONE, 8, 1.0)
    standing = tracker(done, waiting)
    assert {ZERO: 4, ONE: 8} == standing.committable()
    done.finish(Tombstone())
    standing.release({})
    assert {ZERO: 5, ONE: 8} == standing.committable()
    assert {} == tracker().committable()


@pytest.fixture
def world() -> World:
    """With one worker's worth of chance."""
    return World(seed=5)


def test_lag_and_unstable_offsets_are_those_of_our_partitions(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of lag, where both ends of it are known. The client remembers other partitions, which another worker shows."""
    process = world.start()
    snapshots = process.worker.snapshots
    snapshots.tracker.assign([ZERO, ONE])
    snapshots.tracker.track(ticket(ZERO, 10, 1.0))
    unstable = {ZERO: Unstable(3, 60.0), Partition(INPUT, 2): Unstable(9, 90.0)}
    connection = Connection(ends={ZERO: 25, ONE: 3}, unstable=unstable)
    monkeypatch.setattr(process.source, "connection", lambda: connection)
    assert ({ZERO: 15}, {ZERO: Unstable(3, 60.0)}) == (snapshots.read().lags, snapshots.read().unstable)


def test_in_a_recovery_the_oldest_gets_older(world: World) -> None:
    """What was about to be published is unprocessed still; forgetting it makes it no younger, until it is read again."""
    process = world.start()
    snapshots = process.worker.snapshots
    snapshots.epoch_clock = world.clock
    snapshots.publishing = [ticket(ZERO, 0, world.clock() - 4.0)]
    assert 4.0 == pytest.approx(snapshots.read().oldest_age_s)
    with snapshots.recovering():
        snapshots.publishing = ()
        world.clock.wait(10.0, lambda: False)
        assert 14.0 == pytest.approx(snapshots.read().oldest_age_s)
        assert 0.0 == snapshots.read().turn_age_s
    assert 0.0 == snapshots.read().oldest_age_s


def test_a_record_without_a_time_is_at_least_as_old_as_its_stay_here(world: World) -> None:
    """Else a partition that stands still behind one would look fresh for ever."""
    process = world.start()
    snapshots = process.worker.snapshots
    snapshots.epoch_clock = world.clock
    snapshots.tracker.assign([ZERO, ONE])
    snapshots.tracker.track(ticket(ZERO, 0, None))
    world.clock.wait(25.0, lambda: False)
    snapshots.tracker.track(ticket(ONE, 0, world.clock() - 5.0))
    assert 25.0 == snapshots.read().oldest_age_s


def test_while_no_broker_answers_the_oldest_is_at_least_as_old(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that was published just then would be."""
    process = world.start()
    away = replace(process.source.connection(), away_s=33.0)
    monkeypatch.setattr(process.source, "connection", lambda: away)
    assert 33.0 == process.worker.snapshots.read().oldest_age_s
