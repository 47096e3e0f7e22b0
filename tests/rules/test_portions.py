"""How much one call of the client may bring into memory."""

from __future__ import annotations

from enricher.worker.records import OmittedHeaders, Partition, RawRecord
from enricher.worker.rules.read_limits import Portions


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


def test_what_was_read_is_handed_on() -> None:
    """As it came, and nothing is no reason to fail."""
    portions, records = Portions(), [record(1), record(2)]
    assert portions.learn_from(records) is records
    assert portions.learn_from([]) == []
