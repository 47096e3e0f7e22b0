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
    assert 20 == RateLimit(20.0, 0.0).allows(1000, 3600.0)


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


@pytest.mark.parametrize(
    ("learnt", "asked"),
    [([], [64]), ([16_000_000, 10], [4, 8, 16, 32, 64, 64]), ([200_000_000], [1]), ([-95_000], [3])],
    ids=["nothing: 64, as the client makes objects of all headers", "16 MB", "something huge: never none", "headers"],
)
def test_where_records_are_large_a_call_is_small(learnt: list[int], asked: list[int]) -> None:
    """What is usual is read as usual soon: half is forgotten with each call. Headers that were let go of count as well."""
    portions = Portions()
    portions.learn_from([record(max(size, 0), headers=max(-size, 0)) for size in learnt])
    for expected in asked:
        assert [1, expected] == [portions.of(wanted) for wanted in (1, 1_000)]
        portions.learn_from([record(1_000)])


def held(priority: Priority, behind: str, now_s: float) -> str:
    """The topics that are held; each has a letter for its name."""
    return "".join(priority.to_hold(behind, now_s))


@pytest.mark.parametrize(
    ("topics", "behind", "held_topics"),
    [
        ("ab", [("a", 0), ("b", 0.9), ("a", 1), ("b", 1.9), ("a", 2)], ""),  # one that keeps up: behind now and then
        ("abc", [("b", 0), ("b", 1)], "c"),
        ("abc", [("b", 0), ("b", 1), ("ab", 1.1)], "c"),
        ("abc", [("b", 0), ("b", 1), ("ab", 1.1), ("ab", 2.1)], "bc"),
        ("ab", [("b", 0), ("b", 10)], ""),  # the last one
        ("a", [("a", 0), ("a", 10)], ""),
    ],
)
def test_a_backlog_holds_all_later_topics_and_no_earlier_one(
    topics: str, behind: list[tuple[str, float]], held_topics: str
) -> None:
    """The first of those that have had one for long enough decides. Times are in parts of `BACKLOG_S`."""
    priority = Priority(topics)
    found = [held(priority, each, at * BACKLOG_S) for each, at in behind]
    assert held_topics == found[-1]


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
