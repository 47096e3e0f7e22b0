"""The leg `latency`: open-loop arrivals, and the figures and claims made from latencies."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from itertools import pairwise

import pytest

from tools.bench.legs.latency import NAIVE, OURS, WARM_UP_S, Measured, Point, Repeated, Traffic, outcome
from tools.bench.load import Mix, poisson
from tools.bench.repeating import p99, percentile


def _measured(latencies_ms: Sequence[float]) -> Measured:
    return Measured(
        latencies_ms=latencies_ms,
        articles=len(latencies_ms),
        seconds=10.0,
        visible_per_s=9.0,
        transactions=20,
        worker_cpu_s=2.0,
        broker_cpu_s=1.0,
        others_cores=0.0,
        publisher_late_p99_ms=0.2,
    )


def _repeated(
    p50_ms: float, *, load: float = 0.1, who: str = OURS, articles: int = 10, repetitions: int = 1
) -> Repeated:
    return Repeated(Point("headlines", load, who), [_measured([p50_ms] * articles)] * repetitions)


def _claims(*points: Repeated) -> dict[str, bool]:
    return {claim.text: claim.held for claim in outcome({"headlines": 100.0}, points).claims}


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


@pytest.mark.parametrize(
    ("mix", "load", "p50_ms", "p99_ms"),
    [("headlines", 0.1, 25.0, 60.0), ("news", 0.1, 100.0, 200.0), ("headlines", 0.5, 50.0, None)],
)
def test_claims_are_held_at_the_aim_and_missed_above_it(
    mix: Mix, load: float, p50_ms: float, p99_ms: float | None
) -> None:
    """A percentile equal to its aim is held; one that is a tenth of a millisecond above is missed."""
    tail = [p50_ms if p99_ms is None else p99_ms] * 2
    at_aim = Repeated(Point(mix, load, OURS), [_measured([p50_ms] * 98 + tail)])
    above = Repeated(Point(mix, load, OURS), [_measured([p50_ms + 0.1] * 98 + [each + 0.1 for each in tail])])
    count = 1 if p99_ms is None else 2
    assert [True] * count == list(_claims(at_aim).values())
    assert [False] * count == list(_claims(above).values())


def test_p99_of_too_few_articles_is_missed_and_says_why() -> None:
    """An aim that was not measured is not held; several repetitions together have enough articles."""
    [_, (text, held)] = _claims(_repeated(1.0, articles=99)).items()
    assert not held
    assert "only 99 articles" in text
    assert 7.0 == _repeated(7.0, articles=40, repetitions=5).p99_ms


def test_only_our_worker_is_judged_by_the_aims() -> None:
    """The naive loop is shown beside it."""
    assert {} == _claims(_repeated(900.0, who=NAIVE), _repeated(900.0, load=0.9))


@pytest.mark.parametrize("rate_per_s", [0.001, 20.0])
def test_the_first_seconds_of_a_run_do_not_count(rate_per_s: float) -> None:
    """What counts begins with the first article after them, and there is always one."""
    traffic = Traffic.at("headlines", rate_per_s, 3.0, seed=1)
    assert traffic.due_s[traffic.first_counted] >= WARM_UP_S
    assert all(due_s < WARM_UP_S for due_s in traffic.due_s[: traffic.first_counted])
    assert len(traffic.values) == len(traffic.due_s)
