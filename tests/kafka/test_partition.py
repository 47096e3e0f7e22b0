"""The states of an assigned partition, and the offsets that it may continue at."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enricher.errors import TransactionTrouble
from enricher.worker.kafka.partition import AFTER, AssignedPartition, Event, State
from enricher.worker.records import Mark, Partition, Start

NAME = Partition("articles", 0)
UNTIL = 10_000
EVENTS: dict[Event, Callable[[AssignedPartition], None]] = {
    Event.REWIND: lambda at: at.rewind(4.0),
    Event.FIND: lambda at: at.find(5, 3.0),
    Event.BEGIN: lambda at: at.begin(Start(7, until=UNTIL), 2),
    Event.HOLD: AssignedPartition.hold,
    Event.RELEASE: AssignedPartition.release,
    Event.FINISH: AssignedPartition.finish,
}
WAYS: dict[State, list[Event]] = {
    State.SEARCHING: [],
    State.UNCOMMITTED: [Event.FIND],
    State.READING: [Event.BEGIN],
    State.HELD: [Event.BEGIN, Event.HOLD],
    State.FINISHED: [Event.BEGIN, Event.FINISH],
}
"""From an assignment to each state."""


def new(log_end: int = 300) -> AssignedPartition:
    """One that has just been assigned; its log ends there."""
    return AssignedPartition(NAME, lambda _name: log_end, 0.0)


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
    """A partition is read again from wherever it is, by events that only this worker decides on, until it is finished."""
    ways_back, elsewhere = {Event.BEGIN, Event.RELEASE}, {*State} - {State.READING, State.FINISHED}
    assert all(State.READING in AFTER[state].values() for state in elsewhere)
    assert all(ways_back & AFTER[state].keys() for state in elsewhere)
    assert all(Event.REWIND in AFTER[state] for state in State)


@given(st.lists(st.sampled_from(Event), max_size=30))
def test_whatever_happens_what_it_knows_fits_its_state(events: list[Event]) -> None:
    """A start where it is read or held, else a time since when; a start to be committed in the one state for it."""
    partition = new()
    for event in events:
        if event in AFTER[partition.state]:
            EVENTS[event](partition)
        begun = {State.READING, State.HELD}
        assert (partition.start is not None) == (partition.state in begun | {State.FINISHED})
        assert (partition.uncommitted is not None) == (partition.state is State.UNCOMMITTED)
        assert (partition.unknown_since_s is None) == (partition.start is not None)
        assert partition.deliver(partition.position or 0, 2, 0.0) == (partition.state in begun)


def test_a_start_that_is_found_again_is_no_progress() -> None:
    """It waits for its commit since it was found first, however often it is looked up."""
    partition = new()
    for now_s in (3.0, 4.0):
        partition.find(5, now_s)
    assert 3.0 == partition.progress_s
    partition.find(6, 5.0)
    assert 5.0 == partition.progress_s


def test_what_it_delivered_is_forgotten_in_a_rewind() -> None:
    """It goes on where it is committed, and that may be earlier."""
    partition = begun(7, log_end=300)
    assert partition.deliver(8, 3, 0.0)
    partition.rewind(9.0)
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


def of_a_range(start: int, until: int) -> AssignedPartition:
    """One whose range ends before `until`."""
    partition = new(until + 100)
    partition.begin(Start(start, until=until))
    return partition


def test_a_range_ends_with_its_last_record() -> None:
    """What the client had fetched behind it is dropped."""
    partition = of_a_range(7, 9)
    assert partition.deliver(7, 1, 0.0)
    assert (State.READING, None) == (partition.state, partition.to_commit)
    assert partition.deliver(8, 1, 0.0)
    assert (State.FINISHED, 9) == (partition.state, partition.to_commit)
    assert not partition.deliver(9, 1, 0.0)
    assert not partition.reach_end(10, 0.0)
    assert 9 == partition.to_commit


@pytest.mark.parametrize("behind", [9, 12])
def test_a_range_whose_last_records_are_gone_ends_behind_them(behind: int) -> None:
    """They were markers or aborted, or compaction removed them: the next record or the partition's end tells."""
    by_a_record, by_the_end = of_a_range(7, 9), of_a_range(7, 9)
    assert not by_a_record.deliver(behind, 1, 0.0)
    assert by_the_end.reach_end(behind, 0.0)
    for partition in (by_a_record, by_the_end):
        assert (State.FINISHED, 9) == (partition.state, partition.to_commit)


@pytest.mark.parametrize(("start", "committed"), [(9, 9), (11, 11)])
def test_a_range_that_is_read_already_ends_at_once_and_commits_nothing_lower(start: int, committed: int) -> None:
    """A process that is started again finds most partitions finished."""
    partition = of_a_range(start, 9)
    assert (State.FINISHED, committed) == (partition.state, partition.to_commit)


def test_a_range_does_not_end_while_its_end_is_hidden() -> None:
    """An open transaction ends the partition for a reader before the range does."""
    partition = of_a_range(7, 9)
    assert partition.reach_end(8, 0.0)
    assert (State.READING, 8) == (partition.state, partition.to_commit)


def test_the_time_that_a_start_is_unknown_counts_through_a_rewind() -> None:
    """A recovery does not answer the question."""
    partition = new()
    for now_s in (3.0, 4.0):
        partition.rewind(now_s)
    assert 0.0 == partition.unknown_since_s
    partition.begin(Start(7, Mark()))
    partition.rewind(5.0)
    assert 5.0 == partition.unknown_since_s
