"""Offsets, one small case each. `test_offsets_any_order.py` has all orders at once."""

from __future__ import annotations

import pytest
from rules.building import P0, raw

from enricher.worker.records import HEADER_BYTES, RawRecord, Ticket, Tombstone
from enricher.worker.rules.offsets import OffsetTracker


def tracked(*offsets: int, tracker: OffsetTracker | None = None) -> tuple[OffsetTracker, list[Ticket]]:
    """A tracker with tickets of these offsets in flight."""
    tracker = tracker or OffsetTracker()
    if P0 not in tracker.partitions:
        tracker.assign([P0])
    tickets = [Ticket(raw(offset), 0.0) for offset in offsets]
    for ticket in tickets:
        tracker.track(ticket)
    return tracker, tickets


def test_what_is_finished_waits_for_what_is_before_it() -> None:
    """Offset 5 is slow: 9 and 12 are held back, and come with it, in order."""
    tracker, (first, second, third) = tracked(5, 9, 12)
    second.finish(Tombstone())
    third.finish(Tombstone())
    assert tracker.release({}).empty
    assert not tracker.publishable()
    first.finish(Tombstone())
    assert tracker.publishable()
    release = tracker.release({})
    assert [first, second, third] == list(release.tickets)
    assert {P0: 13} == release.committable


def test_nothing_is_released_twice() -> None:
    """A second release right after has nothing to say, not even the same offset."""
    tracker, (ticket,) = tracked(5)
    ticket.finish(Tombstone())
    assert not tracker.release({}).empty
    assert tracker.release({P0: 6}).empty


def test_positions_count_only_for_partitions_without_work_in_flight() -> None:
    """A position beyond an unfinished article would skip it."""
    tracker, (ticket,) = tracked(5)
    assert tracker.idle() == []
    assert tracker.release({P0: 20}).empty
    ticket.finish(Tombstone())
    assert {P0: 6} == tracker.release({P0: 20}).committable
    assert tracker.idle() == [P0]
    assert {P0: 20} == tracker.release({P0: 20}).committable


def test_a_partition_that_is_not_ours_is_not_committed() -> None:
    """A position of one that went away is ignored."""
    tracker, _ = tracked(5)
    assert tracker.unassign([P0]) == 1
    assert tracker.release({P0: 6}).empty
    assert (tracker.in_flight, tracker.in_flight_bytes, tracker.count_unfinished()) == (0, 0, 0)


@pytest.mark.parametrize("offset", [5, 4])
def test_offsets_that_do_not_grow_are_a_bug(offset: int) -> None:
    """The same record twice, or an older one, means that two readers are mixed up."""
    tracker, _ = tracked(5)
    with pytest.raises(AssertionError):
        tracked(offset, tracker=tracker)


def test_a_record_below_the_committable_offset_is_a_bug() -> None:
    """Its output would be left out of every release."""
    tracker, _ = tracked()
    tracker.release({P0: 10})
    with pytest.raises(AssertionError):
        tracked(9, tracker=tracker)


def test_after_forgetting_the_offsets_may_start_again() -> None:
    """A rewind delivers the same offsets once more, and they are released once more."""
    tracker, (old,) = tracked(5)
    assert tracker.forget() == 1
    assert old.forgotten
    _, (new,) = tracked(5, tracker=tracker)
    new.finish(Tombstone())
    assert [new] == list(tracker.release({}).tickets)


def test_bytes_in_flight_are_those_of_key_value_and_headers() -> None:
    """A record may be large in any of them, and all are held until it is published."""
    tracker, ticket = OffsetTracker(), Ticket(RawRecord(P0, 5, b"key", b"value", (("name", b"12"), ("n", None))), 0.0)
    tracker.assign([P0])
    tracker.track(ticket)
    assert len("keyvaluename12n") + 2 * HEADER_BYTES == tracker.in_flight_bytes
    ticket.finish(Tombstone())
    tracker.release({})
    assert tracker.in_flight_bytes == 0
