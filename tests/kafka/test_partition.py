"""The states of an assigned partition, the offsets that it may continue at, and when its silence means that it is lost."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enricher.errors import TransactionTrouble
from enricher.worker.kafka.partition import AFTER, AssignedPartition, Event, State
from enricher.worker.kafka.partitions import Partitions
from enricher.worker.records import Mark, Partition, Start

NAME = Partition("articles", 0)
EVENTS: dict[Event, Callable[[AssignedPartition], None]] = {
    Event.REWIND: lambda at: at.rewind(4.0),
    Event.FIND: lambda at: at.find(5, 3.0),
    Event.BEGIN: lambda at: at.begin(Start(7), 2),
    Event.HOLD: AssignedPartition.hold,
    Event.RELEASE: AssignedPartition.release,
}
WAYS: dict[State, list[Event]] = {
    State.SEARCHING: [],
    State.UNCOMMITTED: [Event.FIND],
    State.READING: [Event.BEGIN],
    State.HELD: [Event.BEGIN, Event.HOLD],
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


@given(st.lists(st.sampled_from(Event), max_size=30))
def test_whatever_happens_what_it_knows_fits_its_state(events: list[Event]) -> None:
    """A start where it is read or held, else a time since when; a start to be committed in the one state for it."""
    partition = new()
    for event in events:
        if event in AFTER[partition.state]:
            EVENTS[event](partition)
        begun = {State.READING, State.HELD}
        assert (partition.start is not None) == (partition.state in begun)
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
    partition.rewind(6.0)
    assert (6, None) == (partition.beginning, partition.uncommitted), "it is not determined again"


def test_what_it_delivered_is_forgotten_in_a_rewind() -> None:
    """It goes on where it is committed, and that may be earlier."""
    partition = begun(7, log_end=300)
    assert partition.deliver(8, 3, 0.0)
    partition.rewind(9.0)
    assert (None, None, None) == (partition.position, partition.to_commit, partition.epoch_before(9))
    partition.begin(Start(2, Mark()))
    assert 2 == partition.position
    assert partition.deliver(2, 3, 0.0)


def test_a_log_that_lost_its_end_is_read_from_where_the_client_begins(caplog: pytest.LogCaptureFixture) -> None:
    """Its records have new contents at old offsets; waiting for the old ones would stop the partition for ever."""
    partition = begun(267, log_end=100)
    assert partition.reach_end(100, 0.0)
    assert 100 == partition.to_commit
    assert "articles[0] has lost its end: it ends at 100, before the committed offset 267" in caplog.text


def test_the_time_that_a_start_is_unknown_counts_through_a_rewind() -> None:
    """A recovery does not answer the question."""
    partition = new()
    for now_s in (3.0, 4.0):
        partition.rewind(now_s)
    assert 0.0 == partition.unknown_since_s
    partition.begin(Start(7, Mark()))
    partition.rewind(5.0)
    assert 5.0 == partition.unknown_since_s


ONE, OTHER = Partition("articles", 0), Partition("articles", 1)
BOUND_S = 60.0


@pytest.fixture
def partitions() -> Partitions:
    """Two that are at offset 5, and have been expected to deliver since 0 seconds."""
    partitions = Partitions(lambda _name: 300, bound_s=BOUND_S, start_bound_s=BOUND_S)
    partitions.add([ONE, OTHER], 0.0)
    for name in (ONE, OTHER):
        partitions[name].begin(Start(5, Mark()))
    partitions.expect([ONE, OTHER], 0.0)
    return partitions


def learn(partitions: Partitions, ends: dict[Partition, int], now_s: float) -> None:
    """The broker says these ends, if it is asked."""
    partitions.learn(ends, partitions.to_ask(now_s), now_s)


def behind(partitions: Partitions, now_s: float) -> None:
    """The broker says that there is more of the first, and that the other is at its end."""
    learn(partitions, {ONE: 10, OTHER: 5}, now_s)


def hear(partitions: Partitions, name: Partition, now_s: float) -> None:
    """It is at its end."""
    assert partitions[name].reach_end(5, now_s)


def test_a_partition_that_speaks_is_never_asked_about(partitions: Partitions) -> None:
    """A record or an end within half the bound is enough."""
    hear(partitions, ONE, 25.0)
    hear(partitions, OTHER, 25.0)
    assert [] == partitions.to_ask(50.0)
    assert [ONE, OTHER] == partitions.to_ask(55.0)


def test_silence_counts_from_the_last_sign_once_there_is_more_to_read(partitions: Partitions) -> None:
    """Before that it may well have nothing to give."""
    assert 0.0 == partitions.silent_s(30.0)
    behind(partitions, 30.0)
    assert 45.0 == partitions.silent_s(45.0)


def test_a_partition_that_is_paused_or_gone_owes_nothing(partitions: Partitions) -> None:
    """Its time begins again when it is read again."""
    behind(partitions, 30.0)
    partitions[ONE].hold()
    assert [] == partitions.overdue(100.0)
    partitions[ONE].release()
    partitions.expect([ONE], 100.0)
    assert ONE not in partitions.to_ask(129.0)
    assert ONE in partitions.to_ask(130.0)


def test_one_whose_start_nobody_says_is_late_after_its_bound(partitions: Partitions) -> None:
    """Whether its leader answers or not, and also during a pause: it has nothing to deliver, but is looked up."""
    third = Partition("articles", 2)
    partitions.add([third], 10.0)
    partitions.expect([third], 20.0)
    learn(partitions, {third: 4}, 40.0)
    assert ([], [third]) == (partitions.late(69.0), partitions.late(70.0))
    assert 60.0 == partitions.silent_s(70.0), "the age of what waits is seen"


STEPS: dict[str, Callable[[Partitions, float], None]] = {
    "more of it": behind,
    "no more of it": lambda partitions, now_s: learn(partitions, {ONE: 5, OTHER: 5}, now_s),
    "no leader": lambda partitions, now_s: learn(partitions, {OTHER: 5}, now_s),
    "another log": lambda partitions, now_s: learn(partitions, {ONE: 3, OTHER: 5}, now_s),
    "it delivers": lambda partitions, now_s: hear(partitions, ONE, now_s),
}


@pytest.mark.parametrize(
    ("steps", "overdue_from_s"),
    [
        pytest.param([(30, "more of it")], 60, id="half of the bound is left"),
        pytest.param([(30, "no more of it"), (300, "no more of it")], None, id="at its end"),
        pytest.param([(30, "more of it"), (50, "no leader")], None, id="nobody could deliver"),
        pytest.param([(30, "more of it"), (50, "no leader"), (100, "more of it")], 130, id="a new leader"),
        pytest.param([(30, "another log")], 60, id="the topic was made again"),
        pytest.param([(30, "more of it"), (59, "it delivers")], None, id="late"),
        pytest.param(
            [(30, "more of it"), (61, "it delivers"), (95, "more of it")], 125, id="the next silence is a new one"
        ),
    ],
)
def test_only_one_behind_its_end_is_overdue(
    partitions: Partitions, steps: Sequence[tuple[float, str]], overdue_from_s: float | None
) -> None:
    """Half the bound until the broker is asked, and half until it is overdue."""
    for now_s, step in steps:
        STEPS[step](partitions, float(now_s))
    if overdue_from_s is None:
        assert [] == partitions.overdue(1000.0)
    else:
        assert ([], [ONE]) == (partitions.overdue(overdue_from_s - 1), partitions.overdue(overdue_from_s))


@pytest.mark.parametrize("event", [AssignedPartition.reach_end, lambda at, offset, _: at.deliver(offset, 3, 0.0)])
@pytest.mark.parametrize(("delivered", "back_to", "expected"), [([], 0, 267), ([267, 268], 267, 269)])
def test_a_whole_log_that_goes_back_is_trouble(
    event: Callable[[AssignedPartition, int, float], object], delivered: list[int], back_to: int, expected: int
) -> None:
    """The client asked for an offset that it read from a damaged batch, or the topic was truncated or made again."""
    partition = begun(267, log_end=300)
    assert all(partition.deliver(offset, 3, 0.0) for offset in delivered)
    with pytest.raises(TransactionTrouble, match=f"continues at offset {back_to} after {expected}"):
        event(partition, back_to, 0.0)
    assert partition.to_commit is None
