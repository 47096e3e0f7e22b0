"""Which timestamps of publishers are believed."""

from __future__ import annotations

import pytest

from enricher.worker.kafka.metadata import plausible_timestamp_s

NOW_S = 1_790_000_000.0
DAY_S = 86_400.0


@pytest.mark.parametrize(
    ("timestamp_s", "believed"),
    [
        pytest.param(NOW_S, True, id="now"),
        pytest.param(NOW_S - 20 * 365 * DAY_S, True, id="an archive"),
        pytest.param(946_684_800.0, True, id="2000"),
        pytest.param(NOW_S + 0.9 * DAY_S, True, id="a clock that is some hours ahead"),
        pytest.param(-0.001, False, id="none"),
        pytest.param(0.0, False, id="zero"),
        pytest.param(NOW_S / 1_000, False, id="seconds for milliseconds"),
        pytest.param(946_684_799.0, False, id="1999"),
        pytest.param(NOW_S + 1.1 * DAY_S, False, id="the day after tomorrow"),
        pytest.param(NOW_S * 1_000, False, id="microseconds"),
        pytest.param(float(2**63) / 1_000, False, id="the last"),
    ],
)
def test_a_time_that_nobody_can_mean_is_unknown(timestamp_s: float, *, believed: bool) -> None:
    """Its age would be decades, or negative for ever."""
    assert plausible_timestamp_s(timestamp_s, NOW_S) == (timestamp_s if believed else None)
