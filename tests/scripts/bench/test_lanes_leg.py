"""The leg `lanes` without a broker: what it makes of its runs."""

from __future__ import annotations

from tools.bench.legs.lanes import LaneRun, outcome


def test_headlines_are_shown_beside_what_they_are_compared_with() -> None:
    """Median and 99th percentile of each contender, and how fast the backlog went on."""
    runs = {
        "two lanes": [LaneRun([100.0, 200.0, 300.0], 30.0)],
        "one topic": [LaneRun([9_000.0, 8_000.0, 7_000.0], 33.0)],
    }
    found = outcome(runs, 3, 240.0, 1_000)
    assert (200.0, 8_000.0) == tuple(found.figures[who]["p50_ms"].median for who in runs)
    assert 300.0 == found.figures["two lanes"]["p99_ms"].median
    assert [["two lanes", "one topic"], 4] == [[row[0] for row in found.tables[0].rows], len(found.tables[0].rows[0])]
