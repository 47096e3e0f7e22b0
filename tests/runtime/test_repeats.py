"""What is logged again, and what is not."""

from __future__ import annotations

from enricher.worker.runtime.repeats import Repeats


def test_the_same_is_logged_again_when_a_while_has_passed() -> None:
    """An outage of an hour is logged once a minute."""
    times = [0.0, 0.5, 59.0, 60.0, 61.0]
    repeats = Repeats(period_s=60.0, clock=iter(times).__next__)
    assert [True, False, False, True, False] == [repeats.is_new("refused") for _ in times]


def test_news_about_a_subject_is_logged_at_once_and_old_news_later() -> None:
    """A number that changes and changes back is two changes; a subject says nothing about another one."""
    repeats = Repeats()
    assert [True, False, True, True] == [repeats.is_new("group", workers) for workers in (1, 1, 2, 1)]
    assert repeats.is_new("other group", 1)


def test_lines_beyond_the_limit_are_counted_for_the_next_period() -> None:
    """The first line of a period can say how many of the one before were left out, once."""
    times = iter([0.0, 1.0, 2.0, 3.0, 60.0])
    repeats = Repeats(period_s=60.0, lines=2, clock=times.__next__)
    assert [True, True, False, False, True] == [repeats.is_new("lag") for _ in range(5)]
    assert [2, 0] == [repeats.left_out("lag") for _ in range(2)]


def test_a_forgotten_subject_is_new() -> None:
    """What was dropped and comes back is logged like at first."""
    repeats = Repeats()
    repeats.is_new("group")
    repeats.forget("group")
    assert repeats.is_new("group")


def test_strangers_cannot_fill_the_memory() -> None:
    """However many subjects there are, the number that is remembered is bounded."""
    repeats = Repeats()
    for number in range(2_500):
        assert repeats.is_new(number)
    assert not repeats.is_new(2_499)
    assert repeats.is_new(0)
