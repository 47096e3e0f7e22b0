"""How many articles may be read while that is limited."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enricher.worker.records import OmittedHeaders, Partition, RawRecord
from enricher.worker.rules.read_limits import BACKLOG_S, LONGEST_S, SHORTEST_S, Portions, Priority, RateLimit


def test_without_a_limit_the_room_decides() -> None:
    """It is the default, and costs nothing."""
    limit = RateLimit(0.0, 5.0)
    limit.count(1000, 5.0)
    assert (1000, None) == (limit.allows(1000, 5.0), limit.wait_s(5.0))


def test_an_idle_second_is_not_saved_up() -> None:
    """A replay that waited for a transaction does not flood the model afterwards."""
    limit = RateLimit(20.0, 0.0)
    assert 20 == limit.allows(1000, 3600.0)


def test_a_rate_below_one_per_second_still_lets_articles_through() -> None:
    """One every ten seconds; it says when the next one may be read."""
    limit = RateLimit(0.1, 0.0)
    read_s = []
    now_s = 0.0
    for _ in range(4):
        wait_s = limit.wait_s(now_s)
        assert wait_s is not None
        now_s += wait_s
        assert 1 == limit.allows(100, now_s)
        limit.count(1, now_s)
        read_s.append(round(now_s))
    assert [0, 10, 20, 30] == read_s


@given(st.floats(0.5, 500.0), st.lists(st.tuples(st.floats(0.0, 3.0), st.integers(0, 400)), max_size=60))
def test_no_more_than_the_rate_and_a_second_s_burst_is_read(per_s: float, polls: list[tuple[float, int]]) -> None:
    """However the loop polls."""
    limit, now_s, read = RateLimit(per_s, 0.0), 0.0, 0
    for pause_s, room in polls:
        now_s += pause_s
        count = limit.allows(room, now_s)
        limit.count(count, now_s)
        read += count
        assert read <= now_s * per_s + max(1.0, per_s) + 1e-6


def record(value_bytes: int, headers: int = 0) -> RawRecord:
    """One of that size; `headers` were let go of."""
    omitted = OmittedHeaders(headers, 2 * headers) if headers else None
    return RawRecord(Partition("articles", 0), 0, None, b"x" * value_bytes, omitted_headers=omitted)


def test_a_call_never_asks_for_more_than_is_wanted_or_than_64() -> None:
    """The client makes objects of all headers of a call before anybody can look at one."""
    portions = Portions()
    assert [1, 5, 64, 64] == [portions.of(wanted) for wanted in (1, 5, 64, 1_000)]


def test_where_records_are_large_a_call_is_small() -> None:
    """After 1 MB by 64, after 16 MB by four, after something huge by one: never by none."""
    portions = Portions()
    portions.learn_from([record(16_000_000), record(10)])
    assert portions.of(1_000) == 4
    portions.learn_from([record(200_000_000)])
    assert portions.of(1_000) == 1


def test_headers_that_were_let_go_of_count_as_well() -> None:
    """They were in memory all the same."""
    portions = Portions()
    portions.learn_from([record(100, headers=95_000)])
    assert portions.of(1_000) == 3


def test_large_records_are_forgotten_call_by_call() -> None:
    """Half with each call that has none: what is usual is read as usual soon."""
    portions = Portions()
    portions.learn_from([record(16_000_000)])
    asked = []
    for _ in range(5):
        portions.learn_from([record(1_000)])
        asked.append(portions.of(1_000))
    assert asked == [8, 16, 32, 64, 64]


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
