"""The states of an assigned partition, and the offsets that it may continue at."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enricher.errors import TransactionTrouble
from enricher.worker.kafka.reading.partition import AFTER, AssignedPartition, Event, State
from enricher.worker.records import Mark, Partition, Start

NAME = Partition("articles", 0)
EVENTS: dict[Event, Callable[[AssignedPartition], None]] = {
    Event.REWIND: AssignedPartition.rewind,
    Event.HIDE: lambda at: at.hide(3.0),
    Event.FIND: lambda at: at.find(5),
    Event.BEGIN: lambda at: at.begin(Start(7, Mark()), 2),
    Event.HOLD: AssignedPartition.hold,
    Event.RELEASE: AssignedPartition.release,
    Event.SET_ASIDE: AssignedPartition.set_aside,
    Event.TAKE_BACK: AssignedPartition.take_back,
}
WAYS: dict[State, list[Event]] = {
    State.SEARCHING: [],
    State.HIDDEN: [Event.HIDE],
    State.UNCOMMITTED: [Event.FIND],
    State.READING: [Event.BEGIN],
    State.HELD: [Event.BEGIN, Event.HOLD],
    State.ASIDE: [Event.BEGIN, Event.SET_ASIDE],
}
"""From an assignment to each state."""


def new(log_end: int = 300) -> AssignedPartition:
    """One that has just been assigned; its log ends there."""
    return AssignedPartition(NAME, lambda _name: log_end)


def begun(at: int, *, log_end: int) -> AssignedPartition:
    """One that begins here; its log ends there."""
    partition = new(log_end)
    partition.begin(Start(at, Mark()))
    return partition


def brought_to(state: State) -> AssignedPartition:
    """One in that state."""
    partition = new()
    for event in WAYS[state]:
        EVENTS[event](partition)
    assert state is partition.state
    return partition


@pytest.mark.parametrize("event", Event)
@pytest.mark.parametrize("state", State)
def test_the_table_says_what_each_event_makes_of_each_state(state: State, event: Event) -> None:
    """An event that it does not name is an error of the program: it is told with the partition, and changes nothing."""
    partition = brought_to(state)
    if after := AFTER[state].get(event):
        EVENTS[event](partition)
        assert after is partition.state
    else:
        with pytest.raises(RuntimeError, match=rf"articles\[0\]: no {event.name} while {state.name}"):
            EVENTS[event](partition)
        assert state is partition.state


def test_every_state_is_left_and_none_is_a_trap() -> None:
    """A partition is read again from wherever it is, by events that only this worker decides on."""
    ways_back = {Event.BEGIN, Event.RELEASE, Event.TAKE_BACK}
    assert all(State.READING in AFTER[state].values() for state in State if state is not State.READING)
    assert all(ways_back & AFTER[state].keys() for state in State if state is not State.READING)
    assert all(Event.REWIND in AFTER[state] for state in State)


@given(st.lists(st.sampled_from(Event), max_size=30))
def test_whatever_happens_what_it_knows_fits_its_state(events: list[Event]) -> None:
    """A start where it is read, held or aside; a start to be committed, or a time since when, in the one state for it."""
    partition = new()
    for event in events:
        if event in AFTER[partition.state]:
            EVENTS[event](partition)
        assert (partition.start is not None) == (partition.state in {State.READING, State.HELD, State.ASIDE})
        assert (partition.uncommitted is not None) == (partition.state is State.UNCOMMITTED)
        assert (partition.hidden_since_s is not None) == (partition.state is State.HIDDEN)
        assert partition.deliver(partition.position or 0, 2, 0.0) == (partition.start is not None)


def test_the_time_that_outputs_are_hidden_counts_through_a_rewind() -> None:
    """A recovery does not open what somebody else's transaction hides."""
    partition = new()
    for now_s in (3.0, 4.0):
        partition.hide(now_s)
        partition.rewind()
    assert 3.0 == partition.hidden_since_s


def test_what_it_delivered_is_forgotten_in_a_rewind() -> None:
    """It goes on where it is committed, and that may be earlier."""
    partition = begun(7, log_end=300)
    assert partition.deliver(8, 3, 0.0)
    partition.rewind()
    assert (None, None, None) == (partition.position, partition.to_commit, partition.epoch_before(9))
    partition.begin(Start(2, Mark()))
    assert 2 == partition.position
    assert partition.deliver(2, 3, 0.0)


def test_a_first_end_before_the_start_of_a_whole_log_is_trouble() -> None:
    """The client asked for an offset that it read from a damaged batch, and went back to the beginning."""
    partition = begun(267, log_end=300)
    with pytest.raises(TransactionTrouble, match="continues at offset 0 after 267"):
        partition.reach_end(0, 0.0)
    assert partition.to_commit is None


def test_a_log_that_lost_its_end_is_read_from_where_the_client_begins(caplog: pytest.LogCaptureFixture) -> None:
    """Its records have new contents at old offsets; waiting for the old ones would stop the partition for ever."""
    partition = begun(267, log_end=100)
    assert partition.reach_end(100, 0.0)
    assert 100 == partition.to_commit
    assert "articles[0] has lost its end: it ends at 100, before the committed offset 267" in caplog.text
