"""Which timestamps of publishers are believed."""

from __future__ import annotations

import pytest

from enricher.worker.kafka.metadata import plausible_timestamp_s

NOW_S = 1_790_000_000.0
DAY_S = 86_400.0


@pytest.mark.parametrize(
    "timestamp_s", [NOW_S, NOW_S - 1, NOW_S - 20 * 365 * DAY_S, NOW_S + 0.9 * DAY_S, 946_684_800.0]
)
def test_what_a_publisher_may_mean_is_taken_as_it_is(timestamp_s: float) -> None:
    """An archive with the times of its articles, a clock that is some hours ahead."""
    assert plausible_timestamp_s(timestamp_s, NOW_S) == timestamp_s


@pytest.mark.parametrize(
    "timestamp_s",
    [-0.001, 0.0, 0.001, NOW_S / 1_000, 946_684_799.0, NOW_S + 1.1 * DAY_S, NOW_S * 1_000, float(2**63) / 1_000],
    ids=[
        "none",
        "zero",
        "one",
        "seconds for milliseconds",
        "1999",
        "the day after tomorrow",
        "microseconds",
        "the last",
    ],
)
def test_what_nobody_can_mean_is_unknown(timestamp_s: float) -> None:
    """Its age would be decades, or negative for ever."""
    assert plausible_timestamp_s(timestamp_s, NOW_S) is None
