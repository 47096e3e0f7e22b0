"""What the client is told about the assigned partitions."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import TopicPartition
from kafka.quiet import CLIENT_ERRORS, OTHER, PLACE, Quiet

from enricher.errors import TransactionTrouble
from enricher.worker.kafka.assignment import Fetching
from enricher.worker.kafka.partition import State
from enricher.worker.kafka.partitions import Partitions
from enricher.worker.kafka.starts import StartOffset
from enricher.worker.records import Mark, Partition, Start

AT_7 = StartOffset(Start(7, Mark()))


class Stage:
    """A client that is told, and the partitions that it is told about."""

    def __init__(self) -> None:
        self.client = Quiet()
        self.partitions = Partitions(lambda _name: 10, bound_s=60, start_bound_s=80)
        self.fetching = Fetching(self.client.consumer, self.partitions, CLIENT_ERRORS)

    def assign(self, *names: Partition, start: StartOffset | None = AT_7) -> None:
        """These come with this start, as in the client's callback."""
        self.partitions.add(names, 0.0)
        self.fetching.assign(dict.fromkeys(names, start))
        if start:
            for name in names:
                self.partitions[name].begin(start.start)
        self.fetching.expect(names)


@pytest.fixture
def stage() -> Stage:
    """Nothing is assigned yet."""
    return Stage()


def test_a_partition_is_assigned_at_its_start_and_fetched(stage: Stage) -> None:
    """And no longer paused, if it was when it left."""
    stage.client.paused = {PLACE}
    stage.assign(PLACE)
    assert [TopicPartition(*PLACE, 7)] == stage.client.assigned
    assert set() == stage.client.paused


def test_a_partition_without_a_start_is_assigned_but_not_fetched(stage: Stage) -> None:
    """Until it begins; and for as long as the client cannot go there, it keeps waiting."""
    stage.assign(PLACE, start=None)
    assert {PLACE} == stage.client.paused
    stage.client.refuses_to_seek = True
    stage.fetching.begin({PLACE: AT_7})
    assert ({PLACE}, State.SEARCHING) == (stage.client.paused, stage.partitions[PLACE].state)
    stage.client.refuses_to_seek = False
    stage.fetching.begin({PLACE: AT_7})
    assert (set(), State.READING) == (stage.client.paused, stage.partitions[PLACE].state)
    assert [TopicPartition(*PLACE, 7)] == stage.client.sought


def test_during_a_pause_nothing_is_fetched_and_nothing_is_expected(stage: Stage) -> None:
    """What comes meanwhile neither; afterwards all that is read."""
    stage.assign(PLACE)
    stage.fetching.pause()
    stage.assign(OTHER)
    assert {PLACE, OTHER} == stage.client.paused
    assert [] == stage.partitions.to_ask(time.monotonic() + 200)
    stage.fetching.resume()
    assert set() == stage.client.paused
    assert [PLACE, OTHER] == stage.partitions.to_ask(time.monotonic() + 200)


def test_first_records_are_gathered_until_every_new_partition_has_delivered(stage: Stage) -> None:
    """For a moment only: a partition whose leader is away must not make every poll wait."""
    stage.assign(PLACE, OTHER)
    now_s = time.monotonic()
    assert stage.fetching.gathers(now_s)
    assert not stage.fetching.gathers(now_s + 60)
    stage.partitions[PLACE].reach_end(7, 0.0)
    assert stage.fetching.gathers(now_s)
    stage.partitions[OTHER].reach_end(7, 0.0)
    assert not stage.fetching.gathers(now_s)


def test_partitions_that_stay_are_fetched_again_at_once_after_a_rebalance(stage: Stage) -> None:
    """The client paused them and may sleep; those that it has just been given wake it themselves."""
    stage.assign(PLACE)
    stage.fetching.fetch_again()
    assert [] == stage.client.sought
    stage.partitions[PLACE].reach_end(9, 0.0)
    stage.assign(OTHER)
    stage.fetching.fetch_again()
    stage.fetching.fetch_again()
    assert [TopicPartition(*PLACE, 9)] == stage.client.sought


def test_partitions_that_left_or_wait_or_are_held_or_paused_are_not_fetched_after_a_rebalance(stage: Stage) -> None:
    """Nobody knows where they go on, or nobody wants their records now."""
    third = Partition(PLACE.topic, 5)
    stage.assign(PLACE, OTHER, third)
    stage.partitions.rewind([OTHER], 0.0)
    stage.partitions[third].hold()
    stage.assign()
    stage.partitions.remove([PLACE])
    stage.fetching.fetch_again()
    stage.assign(PLACE)
    stage.assign()
    stage.fetching.pause()
    stage.fetching.fetch_again()
    assert [] == stage.client.sought


def test_a_client_that_cannot_go_back_is_trouble(stage: Stage) -> None:
    """What it has dropped would be missing."""
    stage.assign(PLACE)
    stage.partitions[PLACE].reach_end(9, 0.0)
    stage.fetching.go_back([PLACE])
    assert [TopicPartition(*PLACE, 9)] == stage.client.sought
    stage.client.refuses_to_seek = True
    with pytest.raises(TransactionTrouble, match="articles 3"):
        stage.fetching.go_back([PLACE])
