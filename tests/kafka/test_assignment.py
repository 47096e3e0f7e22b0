"""What is made of assigned partitions that come, go, wait, and deliver nothing."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import TopicPartition
from kafka.quiet import CLIENT_ERRORS, CONFIG, OTHER, PLACE, Quiet, no_answer

from enricher.errors import Stalled, TransactionTrouble
from enricher.worker.kafka.reading.assignment import Assignment
from enricher.worker.kafka.reading.partition import State
from enricher.worker.kafka.shared.topicwatch import TopicReplaced
from enricher.worker.records import Start


def silent_for(assignment: Assignment, seconds: int, *, after_s: float = 0.0) -> None:
    """The loop polls, and no records come. It begins so long after the present."""
    began_s = time.monotonic() + after_s
    for second in range(seconds):
        assignment.tend(began_s + second)
        assignment.partitions.note_drain(began_s + second)


@pytest.fixture
def quiet() -> Quiet:
    """A client that never delivers a record."""
    return Quiet()


@pytest.fixture
def assignment(quiet: Quiet) -> Assignment:
    """The assignment of that client."""
    return Assignment(quiet.consumer, CONFIG, quiet.watch, CLIENT_ERRORS)


def test_a_partition_that_comes_during_a_pause_is_not_expected_to_give_anything(assignment: Assignment) -> None:
    """A long pause is no trouble, even if partitions are assigned meanwhile: the worker has no capacity for records."""
    assignment.fetching.pause()
    assignment.add([TopicPartition(*PLACE)])
    silent_for(assignment, 200)
    assignment.rewind()
    silent_for(assignment, 200)
    assert assignment.partitions.silent_s(time.monotonic() + 200) == 0


def test_it_is_expected_from_the_end_of_the_pause_on(assignment: Assignment) -> None:
    """After the pause, a client that delivers nothing of the partition has lost it."""
    assignment.fetching.pause()
    assignment.add([TopicPartition(*PLACE)])
    assignment.fetching.resume()
    with pytest.raises(TransactionTrouble, match="it has more records"):
        silent_for(assignment, 200)


def test_a_topic_made_again_is_trouble_also_where_it_was_noticed_in_a_callback(
    assignment: Assignment, quiet: Quiet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the rebalance brings no partition: those assigned already belong to the old topic."""
    assignment.add([TopicPartition(*PLACE)])
    assignment.tend(time.monotonic())

    def confirm() -> None:
        raise TopicReplaced("another topic")

    monkeypatch.setattr(quiet, "confirm", confirm, raising=False)
    assignment.add([])
    with pytest.raises(TopicReplaced):
        assignment.tend(time.monotonic())
    assignment.tend(time.monotonic())


def test_a_stale_answer_about_offsets_is_not_believed(assignment: Assignment, quiet: Quiet) -> None:
    """Brokers before 4 were seen to report offsets that this process has moved beyond."""
    assignment.add([TopicPartition(*PLACE)])
    assignment.note_commit({PLACE: 5})
    quiet.offset = 3
    with pytest.raises(TransactionTrouble, match="reported as 3, which is stale"):
        assignment.rewind()
    quiet.offset = 5
    assignment.rewind()
    assert Start(5) == assignment.partitions.start_of(PLACE)


def test_a_held_partition_is_not_expected_to_deliver_until_its_hold_ends(assignment: Assignment) -> None:
    """However long it waits for a schema. Afterwards a client that delivers nothing of it has lost it."""
    assignment.add([TopicPartition(*PLACE)])
    assignment.hold([PLACE])
    silent_for(assignment, 200)
    assignment.fetching.pause()
    assignment.fetching.resume()
    silent_for(assignment, 200)
    assert assignment.partitions.silent_s(time.monotonic() + 200) == 0
    assignment.hold([])
    with pytest.raises(TransactionTrouble, match="it has more records"):
        silent_for(assignment, 200, after_s=300.0)


def test_the_end_of_a_held_partition_is_known(assignment: Assignment) -> None:
    """The client reports no ends of what it does not fetch, and lag counts from it. Afterwards the client's counts."""
    assignment.add([TopicPartition(*PLACE)])
    assignment.hold([PLACE])
    assert {} == assignment.partitions.held_ends()
    silent_for(assignment, 10)
    assert {PLACE: 10} == assignment.partitions.held_ends()
    assignment.hold([])
    assert {} == assignment.partitions.held_ends()
    assignment.hold([PLACE])
    assert {} == assignment.partitions.held_ends(), "it may have grown meanwhile"


def test_a_hold_ends_where_the_partition_was_or_in_a_recovery(assignment: Assignment, quiet: Quiet) -> None:
    """A client that refuses to seek must not leave it paused for ever."""
    assignment.add([TopicPartition(*PLACE)])
    assignment.partitions[PLACE].reach_end(7, 0.0)
    assignment.hold([PLACE])
    assignment.hold([])
    assert [TopicPartition(*PLACE, 7)] == quiet.sought
    assert [PLACE] == assignment.partitions.of(State.READING)
    assignment.hold([PLACE])
    quiet.refuses_to_seek = True
    with pytest.raises(TransactionTrouble, match="articles 3"):
        assignment.hold([])


def test_one_that_was_held_and_comes_back_is_not_held(assignment: Assignment) -> None:
    """The loop has said it of another time."""
    assignment.add([TopicPartition(*PLACE)])
    assignment.hold([PLACE])
    assignment.remove([PLACE])
    assignment.add([TopicPartition(*PLACE)])
    assert [PLACE] == assignment.partitions.of(State.READING)


def test_what_is_not_read_yet_is_held_once_it_is(assignment: Assignment) -> None:
    """The loop says in each turn what it wants nothing of, and a start that is found late must not undo that."""
    assignment.add([TopicPartition(*PLACE)])
    assignment.partitions.rewind([PLACE], 0.0)
    assignment.hold([PLACE])
    assert [PLACE] == assignment.partitions.of(State.SEARCHING)
    assignment.tend(time.monotonic() + 1)
    assignment.hold([PLACE])
    assert [PLACE] == assignment.partitions.of(State.HELD)


def test_what_is_aside_stays_there_until_the_turn_of_the_others_is_over(assignment: Assignment) -> None:
    """Whether the loop holds something meanwhile, or resumes without a pause."""
    assignment.add([TopicPartition(*PLACE), TopicPartition(*OTHER)])
    assignment.partitions[OTHER].set_aside()
    assignment.fetching.resume()
    assert [OTHER] == assignment.partitions.of(State.ASIDE)
    assignment.hold([OTHER])
    assignment.hold([])
    assert [PLACE, OTHER] == assignment.partitions.of(State.READING)
    assignment.partitions[OTHER].set_aside()
    assignment.tend(time.monotonic())
    assert [PLACE, OTHER] == assignment.partitions.of(State.READING)


@pytest.mark.parametrize("paused", [False, True])
def test_a_start_that_stays_unknown_needs_a_new_client_and_then_a_new_process(
    assignment: Assignment, quiet: Quiet, *, paused: bool
) -> None:
    """Although the partition's leader answers, and also if nothing is read for now."""
    quiet.trouble = no_answer()
    if paused:
        assignment.fetching.pause()
    before_s = time.monotonic()
    assignment.add([TopicPartition(*PLACE)])
    reason = r"articles 3 delivered nothing for 80 s: its committed offset is unknown \(.*_TIMED_OUT"
    with pytest.raises(TransactionTrouble, match=reason):
        silent_for(assignment, 200)
    assert assignment.needs_new_client
    now_s = time.monotonic()
    assert 200 <= assignment.partitions.silent_s(now_s + 200) <= 200 + now_s - before_s
    assignment.abandon()
    assignment.renew(quiet.consumer)
    assignment.add([TopicPartition(*PLACE)])
    with pytest.raises(Stalled, match="a new client has not helped"):
        silent_for(assignment, 200)
