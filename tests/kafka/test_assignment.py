"""When partitions are expected to deliver records, and when not."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from kafka.clients import config_for
from support.topics import Topics

from enricher.errors import Stalled, TransactionTrouble
from enricher.worker.kafka.reading.assignment import Assignment
from enricher.worker.kafka.reading.partition import State
from enricher.worker.kafka.shared.client_errors import ClientErrors
from enricher.worker.kafka.shared.topicwatch import TopicReplaced, TopicWatch
from enricher.worker.records import Partition

TOPICS = Topics("127.0.0.1:1", "articles", "entities", "dead-letters", "group", {})
PLACE = Partition("articles", 3)


class Quiet:
    """A consumer that accepts everything, and a watch that reports ten records in each partition."""

    topic_id = None
    partitions = MappingProxyType({TOPICS.input: 4})

    def __init__(self) -> None:
        self.assigned: list[TopicPartition] = []
        self.sought: list[TopicPartition] = []

    def __getattr__(self, _name: str) -> Any:  # noqa: ANN401  what is not answered here does nothing
        return lambda *_: None

    def committed(self, places: Sequence[TopicPartition], timeout: float) -> Sequence[TopicPartition]:  # noqa: ARG002
        """All begin at 0."""
        return [TopicPartition(each.topic, each.partition, 0) for each in places]

    def incremental_assign(self, places: Sequence[TopicPartition]) -> None:
        """Ours now."""
        self.assigned += places

    def seek(self, place: TopicPartition) -> None:
        """Fetch from there."""
        self.sought.append(place)

    def assignment(self) -> Sequence[TopicPartition]:
        """What is ours."""
        return self.assigned

    def ends(self, partitions: Collection[Partition]) -> Mapping[Partition, int]:
        """Ten records each."""
        return dict.fromkeys(partitions, 10)


def no_answer(*_: object, **__: object) -> None:
    """What a consumer says if the group's coordinator does not answer."""
    raise KafkaException(KafkaError(KafkaError._TIMED_OUT))


def silent_for(assignment: Assignment, seconds: int, *, after_s: float = 0.0) -> None:
    """The loop polls, and no records come. It begins so long after the present."""
    began_s = time.monotonic() + after_s
    for second in range(seconds):
        assignment.tend(began_s + second)
        assignment.partitions.drained(began_s + second)


@pytest.fixture
def assignment() -> Assignment:
    """The assignment of a client that never delivers a record."""
    quiet, config = Quiet(), config_for(TOPICS)
    return Assignment(cast("Consumer", quiet), config, cast("TopicWatch", quiet), ClientErrors(config))


def client_of(assignment: Assignment) -> Quiet:
    """The consumer that it tells."""
    return cast("Quiet", assignment._consumer)


def test_a_partition_that_comes_during_a_pause_is_not_expected_to_give_anything(assignment: Assignment) -> None:
    """A long pause is no trouble, even if partitions are assigned meanwhile: the worker has no capacity for records."""
    assignment.pause()
    assignment.add([TopicPartition(*PLACE)])
    silent_for(assignment, 200)
    assignment.rewind()
    silent_for(assignment, 200)
    assert assignment.partitions.silent_s(time.monotonic() + 200) == 0


def test_it_is_expected_from_the_end_of_the_pause_on(assignment: Assignment) -> None:
    """After the pause, a client that delivers nothing of the partition has lost it."""
    assignment.pause()
    assignment.add([TopicPartition(*PLACE)])
    assignment.resume()
    with pytest.raises(TransactionTrouble, match="it has more records"):
        silent_for(assignment, 200)


def test_a_topic_made_again_is_trouble_also_where_it_was_noticed_in_a_callback(
    assignment: Assignment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the rebalance brings no partition: those assigned already belong to the old topic."""
    assignment.add([TopicPartition(*PLACE)])
    assignment.tend(time.monotonic())

    def confirm() -> None:
        raise TopicReplaced("another topic")

    monkeypatch.setattr(assignment._watch, "confirm", confirm, raising=False)
    assignment.add([])
    with pytest.raises(TopicReplaced):
        assignment.tend(time.monotonic())
    assignment.tend(time.monotonic())


def test_first_records_are_gathered_until_every_new_partition_has_delivered(assignment: Assignment) -> None:
    """For a moment only: a partition whose leader is away must not make every poll wait."""
    other = Partition("articles", 4)
    assignment.add([TopicPartition(*PLACE), TopicPartition(*other)])
    now_s = time.monotonic()
    assert assignment.gathers(now_s)
    assert not assignment.gathers(now_s + 60)
    assignment.partitions[PLACE].reach_end(0, 0.0)
    assert assignment.gathers(now_s)
    assignment.partitions[other].reach_end(0, 0.0)
    assert not assignment.gathers(now_s)


def test_partitions_that_stay_are_fetched_again_at_once_after_a_rebalance(assignment: Assignment) -> None:
    """The client paused them and may sleep; those that it has just been given wake it themselves."""
    quiet, other = client_of(assignment), Partition("articles", 4)
    assignment.add([TopicPartition(*PLACE)])
    assignment.fetch_again()
    assert [] == quiet.sought
    assignment.partitions[PLACE].reach_end(7, 0.0)
    assignment.add([TopicPartition(*other)])
    assignment.fetch_again()
    assignment.fetch_again()
    assert [TopicPartition(*PLACE, 7)] == quiet.sought


def test_partitions_that_left_or_wait_or_are_paused_are_not_fetched_after_a_rebalance(assignment: Assignment) -> None:
    """Nobody knows where they go on, or nobody wants their records now."""
    quiet, other = client_of(assignment), Partition("articles", 4)
    assignment.add([TopicPartition(*PLACE), TopicPartition(*other)])
    assignment.partitions.rewind([other], 0.0)
    assignment.add([])
    assignment.remove([PLACE])
    assignment.fetch_again()
    assignment.add([TopicPartition(*PLACE)])
    assignment.add([])
    assignment.pause()
    assignment.fetch_again()
    assert [] == quiet.sought


def test_a_held_partition_is_not_expected_to_deliver_until_its_hold_ends(assignment: Assignment) -> None:
    """However long it waits for a schema. Afterwards a client that delivers nothing of it has lost it."""
    assignment.add([TopicPartition(*PLACE)])
    assignment.hold([PLACE])
    silent_for(assignment, 200)
    assignment.pause()
    assignment.resume()
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


def test_a_hold_ends_where_the_partition_was_or_in_a_recovery(
    assignment: Assignment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that refuses to seek must not leave it paused for ever."""
    quiet = client_of(assignment)
    assignment.add([TopicPartition(*PLACE)])
    assignment.partitions[PLACE].reach_end(7, 0.0)
    assignment.hold([PLACE])
    assignment.hold([])
    assert [TopicPartition(*PLACE, 7)] == quiet.sought
    assert [PLACE] == assignment.partitions.of(State.READING)
    assignment.hold([PLACE])
    monkeypatch.setattr(assignment, "_sought", lambda _place: False)
    with pytest.raises(TransactionTrouble, match="articles 3"):
        assignment.hold([])


def test_a_held_partition_is_not_fetched_after_a_rebalance(assignment: Assignment) -> None:
    """And one that left and came back is not held."""
    quiet, other = client_of(assignment), Partition("articles", 4)
    assignment.add([TopicPartition(*PLACE)])
    assignment.hold([PLACE])
    assignment.add([TopicPartition(*other)])
    assignment.fetch_again()
    assert [] == quiet.sought
    assignment.remove([PLACE])
    assignment.add([TopicPartition(*PLACE)])
    assert PLACE in assignment.partitions.of(State.READING)


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
    other = Partition("articles", 4)
    assignment.add([TopicPartition(*PLACE), TopicPartition(*other)])
    assignment.partitions[other].set_aside()
    assignment.resume()
    assert [other] == assignment.partitions.of(State.ASIDE)
    assignment.hold([other])
    assignment.hold([])
    assert [PLACE, other] == assignment.partitions.of(State.READING)
    assignment.partitions[other].set_aside()
    assignment.tend(time.monotonic())
    assert [PLACE, other] == assignment.partitions.of(State.READING)


def test_a_start_that_nobody_says_is_a_warning_once_that_lasts(
    assignment: Assignment, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing of the partition is read meanwhile. A look-up that fails once, as in many a rebalance, is none."""
    monkeypatch.setattr(client_of(assignment), "committed", no_answer)
    assignment.add([TopicPartition(*PLACE)])
    assignment.tend(began_s := time.monotonic())
    assert "has not been known" not in caplog.text
    for second in range(31, 34):
        assignment.tend(began_s + second)
    assert 1 == caplog.text.count("the start of articles 3 has not been known for 31 s")
    monkeypatch.undo()
    assignment.tend(began_s + 35)
    assert [PLACE] == assignment.partitions.of(State.READING)


@pytest.mark.parametrize("paused", [False, True])
def test_a_start_that_stays_unknown_needs_a_new_client_and_then_a_new_process(
    assignment: Assignment, monkeypatch: pytest.MonkeyPatch, *, paused: bool
) -> None:
    """Although the partition's leader answers, and also if nothing is read for now."""
    quiet = client_of(assignment)
    monkeypatch.setattr(quiet, "committed", no_answer)
    if paused:
        assignment.pause()
    assignment.add([TopicPartition(*PLACE)])
    reason = r"articles 3 delivered nothing for 80 s: its committed offset is unknown \(.*_TIMED_OUT"
    with pytest.raises(TransactionTrouble, match=reason):
        silent_for(assignment, 200)
    assert assignment.needs_new_client
    assert 200 == round(assignment.partitions.silent_s(time.monotonic() + 200))
    assignment.abandon()
    assignment.renew(cast("Consumer", quiet))
    assignment.add([TopicPartition(*PLACE)])
    with pytest.raises(Stalled, match="a new client has not helped"):
        silent_for(assignment, 200)
