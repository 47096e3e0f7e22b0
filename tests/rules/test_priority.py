"""Topics in the order of their priority: when later ones are held, for how long, and that none is held for ever."""

from __future__ import annotations

import pytest

from enricher.worker.rules.read_limits import BACKLOG_S, LONGEST_S, SHORTEST_S, Priority


def held(priority: Priority, behind: str, now_s: float) -> str:
    """The topics that are held; each has a letter for its name."""
    return "".join(priority.to_hold(behind, now_s))


def test_a_topic_that_keeps_up_holds_none() -> None:
    """It is behind now and then, for less time than a backlog takes."""
    priority = Priority("ab")
    for number in range(100):
        assert held(priority, "a", number * BACKLOG_S) == ""
        assert held(priority, "b", (number + 0.9) * BACKLOG_S) == ""


def test_a_backlog_holds_all_later_topics_and_no_earlier_one() -> None:
    """The first of those that have one decides."""
    priority = Priority("abc")
    assert held(priority, "b", 0.0) == ""
    assert held(priority, "b", BACKLOG_S) == "c"
    assert held(priority, "ab", BACKLOG_S + 0.1) == "c"
    assert held(priority, "ab", 2 * BACKLOG_S + 0.1) == "bc"


def test_a_backlog_of_the_last_topic_holds_none() -> None:
    """There is none after it; a single topic is first and last."""
    assert [held(Priority("ab"), "b", now_s) for now_s in (0.0, 10.0)] == ["", ""]
    assert [held(Priority("a"), "a", now_s) for now_s in (0.0, 10.0)] == ["", ""]


def test_a_hold_lasts_so_long_although_the_backlog_is_done_at_once() -> None:
    """What was fetched of the others is dropped once, and not with every record of the first."""
    priority = Priority("ab")
    held(priority, "a", 0.0)
    assert held(priority, "a", BACKLOG_S) == "b"
    assert held(priority, "", BACKLOG_S + SHORTEST_S / 2) == "b"
    assert held(priority, "", BACKLOG_S + SHORTEST_S) == ""


@pytest.mark.parametrize("step_s", [0.05, 0.25])
def test_a_backlog_without_end_leaves_a_moment_to_the_others(step_s: float) -> None:
    """Again and again, so that no topic waits for ever; and the first has nearly all of the time."""
    priority, ticks = Priority("ab"), int(10 * LONGEST_S / step_s)
    holds = [held(priority, "a", tick * step_s) == "b" for tick in range(ticks)]
    moments = [tick for tick in range(1, ticks) if holds[tick - 1] and not holds[tick]]
    assert 9 <= len(moments) <= 10
    assert sum(holds) > 0.95 * ticks
