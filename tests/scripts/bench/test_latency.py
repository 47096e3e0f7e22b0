"""Open-loop arrivals, and the figures and claims made from latencies."""

from __future__ import annotations

import statistics
from itertools import pairwise

import pytest

from tools.bench.arrivals import p99, percentile, poisson
from tools.bench.legs.latency.point import SLACK_MS, Measured, Point, rate_between
from tools.bench.legs.latency.report import outcome
from tools.bench.machine import Load

QUIET = Load(1.0, 0.5, 0.1, 0.0)


def _measured(p50_ms: float, *, load: float = 0.1, max_wait_ms: float = 50.0, articles: int = 10) -> Measured:
    return Measured(
        Point("headlines", load, max_wait_ms, 250.0),
        10.0,
        [p50_ms] * articles,
        10.0,
        9.0,
        4,
        0.2,
        0.01,
        QUIET,
    )


def test_arrivals_are_the_same_for_the_same_seed_and_others_for_another() -> None:
    """The same seed repeats a run exactly."""
    assert poisson(50, 10, seed=1) == poisson(50, 10, seed=1)
    assert poisson(50, 10, seed=1) != poisson(50, 10, seed=2)


def test_arrivals_are_in_order_within_the_time_and_at_the_rate() -> None:
    """10,000 are expected, give or take 100 (one standard deviation): five of those would be a bug."""
    times = poisson(100, 100, seed=0)
    assert 0 < times[0] <= times[-1] < 100
    assert times == sorted(times)
    assert 10_000 == pytest.approx(len(times), abs=500)


def test_pauses_between_arrivals_vary_as_those_of_independent_publishers() -> None:
    """Exponential: the standard deviation equals the mean. Even pauses would have none, and would flatter the latency."""
    pauses = [late - early for early, late in pairwise(poisson(100, 100, seed=3))]
    assert statistics.mean(pauses) == pytest.approx(statistics.pstdev(pauses), rel=0.1)


def test_percentiles_are_values_that_were_seen() -> None:
    """Percentiles use the nearest rank and do not depend on the order of values."""
    values = [float(number) for number in range(100, 0, -1)]
    assert (1, 50, 90, 99, 100) == tuple(percentile(values, share) for share in (0, 0.5, 0.9, 0.99, 1))
    assert 7.0 == percentile([7.0], 0.99)


def test_few_values_have_no_99th_percentile() -> None:
    """With few values the 99th percentile would only be the maximum."""
    assert p99([1.0] * 99) is None
    assert 2.0 == p99([1.0] * 98 + [2.0, 2.0])


def test_worker_that_falls_behind_shows_in_the_last_third() -> None:
    """If waits grow from article to article, p50 of the last third is far above the overall p50."""
    growing = Measured(
        Point("headlines", 0.9, 50.0, 250.0),
        10.0,
        [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0],
        10.0,
        9.0,
        4,
        0.2,
        0.01,
        QUIET,
    )
    assert (5.0, 8.0) == (growing.p50_ms, growing.late_p50_ms)


def test_rate_counts_what_became_visible_between() -> None:
    """The interval is half-open, and the order of times does not matter."""
    assert 1.5 == rate_between([5.0, 1.0, 2.0, 3.0, 2.5, 0.5], 1.0, 3.0)
    assert 0.0 == rate_between([], 1.0, 3.0)


def test_aim_is_the_two_waits_one_batch_and_the_slack() -> None:
    """The aim is the sum that the claim states."""
    assert 50 + 9 + 250 + SLACK_MS == _measured(1.0).bound_ms


def test_claim_is_missed_above_the_aim_and_held_at_it() -> None:
    """A p50 equal to the bound is within the aim."""
    bound_ms = _measured(1.0).bound_ms
    assert [True] == [claim.held for claim in outcome([_measured(bound_ms)], {"headlines": 100.0}).claims]
    assert [False] == [claim.held for claim in outcome([_measured(bound_ms + 0.1)], {"headlines": 100.0}).claims]


def test_one_setting_beyond_the_aim_is_a_missed_claim() -> None:
    """The claim about all settings names the worst of them."""
    good, bad = _measured(10.0, max_wait_ms=0.0), _measured(900.0, max_wait_ms=200.0)
    usual, others = outcome([_measured(10.0), good, bad], {"headlines": 100.0}).claims
    assert usual.held
    assert not others.held
    assert "1 of 2 settings" in others.text
    assert "900 of 479 ms" in others.text


def test_points_above_low_load_make_no_claim() -> None:
    """At higher loads articles also wait for one another, so points are only shown."""
    claims = outcome([_measured(10.0), _measured(5000.0, load=0.9)], {"headlines": 100.0}).claims
    assert [True] == [claim.held for claim in claims]


def test_p99_is_drawn_only_where_there_is_one() -> None:
    """The p99 line has only the two points with enough articles."""
    measured = [_measured(10.0), _measured(20.0, load=0.5, articles=100), _measured(30.0, load=0.9, articles=200)]
    plots = {plot.name: plot for plot in outcome(measured, {"headlines": 100.0}).plots}
    series = {series.name: series for series in plots["latency-load"].series}
    assert [10.0, 50.0, 90.0] == list(series["headlines, p50"].x)
    assert [50.0, 90.0] == list(series["headlines, p99"].x)
