"""The rule that tells a partition that a client has lost from one that has nothing to give."""

from __future__ import annotations

import pytest

from enricher.worker.kafka.partitions import Partitions
from enricher.worker.records import Mark, Partition, Start

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


def test_one_that_is_behind_and_gives_nothing_is_overdue_after_the_bound(partitions: Partitions) -> None:
    """Half the bound until it is asked, half until it is judged."""
    behind(partitions, 30.0)
    partitions.note_drain(40.0)
    assert [] == partitions.overdue(59.0)
    assert [ONE] == partitions.overdue(60.0)


def test_one_at_its_end_is_left_alone(partitions: Partitions) -> None:
    """It has nothing to give, for however long."""
    for now_s in range(30, 600, 30):
        learn(partitions, {ONE: 5, OTHER: 5}, float(now_s))
        partitions.note_drain(float(now_s))
    assert [] == partitions.overdue(600.0)


def test_one_whose_leader_is_away_is_left_alone(partitions: Partitions) -> None:
    """Nobody answers for it: there is nothing that a client could fetch. When the leader is back it has its time again."""
    behind(partitions, 30.0)
    learn(partitions, {OTHER: 5}, 50.0)
    partitions.note_drain(80.0)
    assert [] == partitions.overdue(90.0)
    behind(partitions, 100.0)
    partitions.note_drain(110.0)
    assert [] == partitions.overdue(129.0)
    assert [ONE] == partitions.overdue(130.0)


def test_one_beside_a_backlog_is_left_alone_until_it_has_had_its_turn(partitions: Partitions) -> None:
    """Its record may stand in the client's queue, or not be fetched before others, however long that lasts."""
    behind(partitions, 30.0)
    hear(partitions, OTHER, 400.0)
    assert ([ONE], []) == (partitions.overdue(400.0), partitions.stalled)
    partitions.give_turn([ONE], 400.0, renewed=True)
    partitions.note_drain(409.0)
    assert [] == partitions.stalled, "the client may just be fetching"
    partitions.note_drain(410.0)
    assert [ONE] == partitions.stalled


def test_a_turn_lasts_until_the_partition_delivers(partitions: Partitions) -> None:
    """Then others have their records again, and the next turn is a new one."""
    behind(partitions, 30.0)
    partitions.give_turn([ONE], 60.0, renewed=True)
    partitions.give_turn([ONE], 61.0, renewed=False)
    hear(partitions, ONE, 61.0)
    partitions.note_drain(90.0)
    assert ([], []) == (partitions.overdue(90.0), partitions.stalled)
    behind(partitions, 95.0)
    partitions.give_turn([ONE], 130.0, renewed=False)
    assert [] == partitions.stalled


def test_a_turn_that_others_shared_begins_again(partitions: Partitions) -> None:
    """One that has delivered is held, and what it has in the queue is no opportunity for the other one."""
    behind(partitions, 30.0)
    partitions.give_turn([ONE], 60.0, renewed=True)
    partitions.give_turn([ONE], 69.0, renewed=True)
    partitions.note_drain(71.0)
    assert [] == partitions.stalled


def test_a_record_makes_all_well_again(partitions: Partitions) -> None:
    """Late is not never."""
    behind(partitions, 30.0)
    partitions.note_drain(40.0)
    hear(partitions, ONE, 59.0)
    assert [] == partitions.overdue(90.0)
    assert 0.0 == partitions.silent_s(90.0)


def test_silence_counts_from_the_last_sign_once_the_partition_is_known_to_be_behind(partitions: Partitions) -> None:
    """Before that it may well have nothing to give."""
    assert 0.0 == partitions.silent_s(30.0)
    behind(partitions, 30.0)
    assert 45.0 == partitions.silent_s(45.0)


def test_a_partition_that_is_paused_or_gone_owes_nothing(partitions: Partitions) -> None:
    """Its time begins again when it is read again."""
    behind(partitions, 30.0)
    partitions[ONE].hold()
    partitions.note_drain(60.0)
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
    partitions.expect_nothing()
    assert ([], [third]) == (partitions.late(69.0), partitions.late(70.0))
    assert 60.0 == partitions.silent_s(70.0), "the age of what waits is seen"


def test_an_end_before_our_position_is_that_of_another_log(partitions: Partitions) -> None:
    """The topic was made again, and a client that has lost its leader does not notice (seen: silent for two minutes)."""
    learn(partitions, {ONE: 3, OTHER: 5}, 30.0)
    partitions.note_drain(40.0)
    assert [ONE] == partitions.overdue(60.0)
