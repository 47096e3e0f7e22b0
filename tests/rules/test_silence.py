"""The rule that tells a partition that a client has lost from one that has nothing to give."""

from __future__ import annotations

import pytest

from enricher.worker.records import Partition
from enricher.worker.rules.silence import SilenceWatch

ONE, OTHER = Partition("articles", 0), Partition("articles", 1)
BOUND_S = 60.0


@pytest.fixture
def watch() -> SilenceWatch:
    """Two partitions that began at 0 seconds."""
    watch = SilenceWatch(BOUND_S)
    watch.begin([ONE, OTHER], 0.0)
    return watch


def behind(watch: SilenceWatch, now_s: float) -> None:
    """The broker says that there is more of the first, and that the other is at its end."""
    watch.told({ONE: 10, OTHER: 5}, {ONE: 5, OTHER: 5}, now_s)


def test_a_partition_that_speaks_is_never_asked_about(watch: SilenceWatch) -> None:
    """A record or an end within half the bound is enough."""
    watch.heard(ONE, 25.0)
    watch.heard(OTHER, 25.0)
    assert [] == watch.to_ask(50.0)
    assert [ONE, OTHER] == watch.to_ask(55.0)


def test_one_that_is_behind_and_gives_nothing_is_overdue_after_the_bound(watch: SilenceWatch) -> None:
    """Half the bound until it is asked, half until it is judged."""
    behind(watch, 30.0)
    watch.drained(40.0)
    assert [] == watch.overdue(59.0)
    assert [ONE] == watch.overdue(60.0)


def test_one_at_its_end_is_left_alone(watch: SilenceWatch) -> None:
    """It has nothing to give, for however long."""
    for now_s in range(30, 600, 30):
        watch.told({ONE: 5, OTHER: 5}, {ONE: 5, OTHER: 5}, float(now_s))
        watch.drained(float(now_s))
    assert [] == watch.overdue(600.0)


def test_one_whose_leader_is_away_is_left_alone(watch: SilenceWatch) -> None:
    """Nobody answers for it: there is nothing that a client could fetch. When the leader is back it has its time again."""
    behind(watch, 30.0)
    watch.told({OTHER: 5}, {ONE: 5, OTHER: 5}, 50.0)
    watch.drained(80.0)
    assert [] == watch.overdue(90.0)
    behind(watch, 100.0)
    watch.drained(110.0)
    assert [] == watch.overdue(129.0)
    assert [ONE] == watch.overdue(130.0)


def test_one_beside_a_backlog_is_left_alone_until_it_has_had_its_turn(watch: SilenceWatch) -> None:
    """Its record may stand in the client's queue, or not be fetched before others, however long that lasts."""
    behind(watch, 30.0)
    watch.heard(OTHER, 400.0)
    assert ([ONE], []) == (watch.overdue(400.0), watch.stalled())
    watch.give_turn([ONE], 400.0, renewed=True)
    watch.drained(401.0)
    assert [] == watch.stalled(), "the client may just be fetching"
    watch.drained(402.0)
    assert [ONE] == watch.stalled()


def test_a_turn_lasts_until_the_partition_delivers(watch: SilenceWatch) -> None:
    """Then others have their records again, and the next turn is a new one."""
    behind(watch, 30.0)
    watch.give_turn([ONE], 60.0, renewed=True)
    watch.give_turn([ONE], 61.0, renewed=False)
    watch.heard(ONE, 61.0)
    watch.drained(90.0)
    assert ([], []) == (watch.overdue(90.0), watch.stalled())
    behind(watch, 95.0)
    watch.give_turn([ONE], 130.0, renewed=False)
    assert [] == watch.stalled()


def test_a_turn_that_others_shared_begins_again(watch: SilenceWatch) -> None:
    """One that has delivered is held, and what it has in the queue is no opportunity for the other one."""
    behind(watch, 30.0)
    watch.give_turn([ONE], 60.0, renewed=True)
    watch.give_turn([ONE], 70.0, renewed=True)
    watch.drained(71.0)
    assert [] == watch.stalled()


def test_a_record_makes_all_well_again(watch: SilenceWatch) -> None:
    """Late is not never."""
    behind(watch, 30.0)
    watch.drained(40.0)
    watch.heard(ONE, 59.0)
    assert [] == watch.overdue(90.0)
    assert 0.0 == watch.silent_s(90.0)


def test_silence_counts_from_the_last_sign_once_the_partition_is_known_to_be_behind(watch: SilenceWatch) -> None:
    """Before that it may well have nothing to give."""
    assert 0.0 == watch.silent_s(30.0)
    behind(watch, 30.0)
    assert 45.0 == watch.silent_s(45.0)


def test_a_partition_that_is_paused_or_gone_owes_nothing(watch: SilenceWatch) -> None:
    """Its time begins again when it is read again."""
    behind(watch, 30.0)
    watch.end([ONE])
    watch.drained(60.0)
    assert [] == watch.overdue(100.0)
    watch.begin([ONE], 100.0)
    assert [] == watch.silent([ONE], 159.0)
    assert [ONE] == watch.silent([ONE], 160.0)


def test_an_end_before_our_position_is_that_of_another_log(watch: SilenceWatch) -> None:
    """The topic was made again, and a client that has lost its leader does not notice (seen: silent for two minutes)."""
    watch.told({ONE: 3, OTHER: 5}, {ONE: 5, OTHER: 5}, 30.0)
    watch.drained(40.0)
    assert [ONE] == watch.overdue(60.0)
