"""How many articles may be read while that is limited."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from enricher.worker.rules.read_limits import RateLimit


def test_without_a_limit_the_room_decides() -> None:
    """It is the default, and costs nothing."""
    limit = RateLimit(0.0, 5.0)
    limit.taken(1000, 5.0)
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
        limit.taken(1, now_s)
        read_s.append(round(now_s))
    assert [0, 10, 20, 30] == read_s


@given(st.floats(0.5, 500.0), st.lists(st.tuples(st.floats(0.0, 3.0), st.integers(0, 400)), max_size=60))
def test_no_more_than_the_rate_and_a_second_s_burst_is_read(per_s: float, polls: list[tuple[float, int]]) -> None:
    """However the loop polls."""
    limit, now_s, read = RateLimit(per_s, 0.0), 0.0, 0
    for pause_s, room in polls:
        now_s += pause_s
        count = limit.allows(room, now_s)
        limit.taken(count, now_s)
        read += count
        assert read <= now_s * per_s + max(1.0, per_s) + 1e-6
