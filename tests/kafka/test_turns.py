"""A partition that delivers nothing beside others is read alone, and the others go on afterwards."""

from __future__ import annotations

import pytest
from confluent_kafka import TopicPartition
from kafka.quiet import CLIENT_ERRORS, OTHER, PLACE, Quiet

from enricher.worker.kafka.reading.fetching import Fetching
from enricher.worker.kafka.reading.partition import State
from enricher.worker.kafka.reading.partitions import Partitions
from enricher.worker.kafka.reading.turns import Turns
from enricher.worker.records import Mark, Start

BOUND_S = 60.0


class Stage:
    """Two partitions that have ten records each; one of them delivers them, the other none."""

    def __init__(self) -> None:
        self.client = Quiet()
        self.partitions = Partitions(lambda _name: 10, bound_s=BOUND_S, start_bound_s=80)
        self.turns = Turns(
            self.partitions, Fetching(self.client.consumer, self.partitions, CLIENT_ERRORS), self.client.watch, BOUND_S
        )
        self.partitions.add([PLACE, OTHER], 0.0)
        for name in (PLACE, OTHER):
            self.partitions[name].begin(Start(0, Mark()))
        self.partitions.expect([PLACE, OTHER], 0.0)

    def turn(self, *seconds: int) -> None:
        """Turns of the loop, in which the other partition delivers if it is read."""
        for second in seconds:
            self.turns.learn_ends(float(second))
            self.turns.take(float(second))
            if self.partitions[OTHER].state is State.READING:
                self.partitions[OTHER].deliver(second, None, float(second))


@pytest.fixture
def stage() -> Stage:
    """Both are read."""
    return Stage()


def test_one_that_delivers_nothing_is_read_alone_after_the_bound(stage: Stage) -> None:
    """What the client has fetched of the others is no excuse any more."""
    stage.turn(*range(60))
    assert set() == stage.client.paused
    stage.turn(60, 61)
    assert {OTHER} == stage.client.paused
    assert ([PLACE], [OTHER]) == (stage.partitions.of(State.READING), stage.partitions.of(State.ASIDE))


def test_the_others_go_on_where_they_were_when_it_delivers(stage: Stage) -> None:
    """The client has dropped what it had fetched of them."""
    stage.turn(*range(62))
    position = stage.partitions[OTHER].position
    stage.partitions[PLACE].deliver(0, None, 62.0)
    stage.turns.take(62.0)
    assert [TopicPartition(*OTHER, position or 0)] == stage.client.sought
    assert (set(), [PLACE, OTHER]) == (stage.client.paused, stage.partitions.of(State.READING))


def test_one_that_is_held_meanwhile_stays_so(stage: Stage) -> None:
    """The loop wants nothing of it, whoever's turn it is."""
    stage.turn(*range(62))
    stage.partitions[OTHER].hold()
    stage.partitions[PLACE].deliver(0, None, 62.0)
    stage.turns.take(62.0)
    assert ({OTHER}, [OTHER]) == (stage.client.paused, stage.partitions.of(State.HELD))
