"""How long is waited, and how often is asked."""

from __future__ import annotations

from enricher.worker.runtime.deadlines import Deadline, until


def test_the_time_left_ends_at_zero() -> None:
    """A wait that is given what is left never gets a number below 0."""
    now_s = 100.0
    deadline = Deadline(5.0, lambda: now_s)
    assert (5.0, False) == (deadline.left_s(), deadline.over)
    now_s = 104.0
    assert (1.0, False) == (deadline.left_s(), deadline.over)
    now_s = 105.0
    assert (0.0, True) == (deadline.left_s(), deadline.over)
    now_s = 200.0
    assert (0.0, True) == (deadline.left_s(), deadline.over)


def test_a_passed_deadline_leaves_one_question() -> None:
    """What holds already is found without any time."""
    answers = iter([True, False])
    assert until(lambda: next(answers), Deadline(0.0), pause_s=1.0)
    assert not until(lambda: next(answers), Deadline(0.0), pause_s=1.0)
    assert [] == list(answers)


def test_it_is_asked_again_until_it_holds() -> None:
    """Each question is one call."""
    answers = iter([False, False, True])
    assert until(lambda: next(answers), Deadline(60.0), pause_s=0.0)
