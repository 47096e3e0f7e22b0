"""The leg `latency`: open-loop arrivals, and the figures made from latencies."""

from __future__ import annotations

import statistics
from itertools import pairwise

import pytest

from tools.bench.legs.latency import NAIVE, OURS, WARM_UP_S, Measured, Point, Repeated, Traffic, outcome
from tools.bench.load import poisson
from tools.bench.repeating import p99, percentile


def _repeated(load: float, articles: int, who: str = OURS) -> Repeated:
    """One run of ten seconds, in which each article took 10 ms."""
    run = Measured(
        latencies_ms=[10.0] * articles,
        articles=articles,
        seconds=10.0,
        visible_per_s=9.0,
        transactions=20,
        worker_cpu_s=2.0,
        broker_cpu_s=1.0,
        others_cores=0.0,
        publisher_late_p99_ms=0.2,
    )
    return Repeated(Point("headlines", load, who), [run])


def test_arrivals_are_in_order_at_the_rate_and_the_same_for_the_same_seed() -> None:
    """10,000 are expected, give or take 100 (one standard deviation): five of those would be a bug."""
    times = poisson(100, 100, seed=0)
    assert 0 < times[0] <= times[-1] < 100
    assert times == sorted(times)
    assert 10_000 == pytest.approx(len(times), abs=500)
    assert times == poisson(100, 100, seed=0) != poisson(100, 100, seed=2)


def test_pauses_between_arrivals_vary_as_those_of_independent_publishers() -> None:
    """Exponential: the standard deviation equals the mean. Even pauses would have none, and would flatter the latency."""
    pauses = [late - early for early, late in pairwise(poisson(100, 100, seed=3))]
    assert statistics.mean(pauses) == pytest.approx(statistics.pstdev(pauses), rel=0.1)


def test_percentiles_are_values_that_were_seen() -> None:
    """Percentiles use the nearest rank; with few values the 99th would only be the maximum, so there is none."""
    values = [float(number) for number in range(100, 0, -1)]
    assert (1, 50, 90, 99, 100) == tuple(percentile(values, share) for share in (0, 0.5, 0.9, 0.99, 1))
    assert p99([1.0] * 99) is None
    assert 2.0 == p99([1.0] * 98 + [2.0, 2.0])


@pytest.mark.parametrize("rate_per_s", [0.001, 20.0])
def test_the_first_seconds_of_a_run_do_not_count(rate_per_s: float) -> None:
    """What counts begins with the first article after them, and there is always one."""
    traffic = Traffic.at("headlines", rate_per_s, 3.0, seed=1)
    assert traffic.due_s[traffic.first_counted] >= WARM_UP_S
    assert all(due_s < WARM_UP_S for due_s in traffic.due_s[: traffic.first_counted])
    assert len(traffic.values) == len(traffic.due_s)


def test_p99_is_shown_only_where_there_is_one() -> None:
    """Where there are enough articles; the naive loop is in the table alone."""
    points = [_repeated(0.1, 10), _repeated(0.5, 100), _repeated(0.1, 100, NAIVE)]
    found = outcome({"headlines": 100.0}, points)
    [table], [plot] = found.tables, found.plots
    p99_ms = [*table.columns].index("p99, ms")
    assert ["-", "10", "10"] == [row[p99_ms] for row in table.rows]
    assert [("headlines, p50", [10.0, 50.0]), ("headlines, p99", [50.0])] == [
        (series.name, list(series.x)) for series in plot.series
    ]
