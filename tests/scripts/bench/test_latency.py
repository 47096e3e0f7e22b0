"""Open-loop arrivals, and the figures and claims made from latencies."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from tools.bench.arrivals import poisson
from tools.bench.legs.latency.measured import (
    NAIVE,
    Batching,
    Measured,
    Point,
    Repeated,
)
from tools.bench.legs.latency.point import WARM_UP_S, Traffic, rate_between
from tools.bench.legs.latency.report import Results, outcome
from tools.bench.legs.latency.stages import STAGES, StageTimes
from tools.bench.load import Mix
from tools.bench.machine import Load
from tools.bench.outcome import Claim
from tools.bench.policy import Policy
from tools.bench.repeating import Run, Spread, p99, percentile

BATCHING = Batching(padded_per_real_token=1.1, tokens_per_batch=275.0, run_ms=9.0)
STAGE_TIMES = StageTimes([[1.0] * len(STAGES), [3.0] * len(STAGES)])
OTHER = Policy("other", {"batching": {"max_wait_ms": 50.0}})


def _measured(latencies_ms: Sequence[float], *, worker_cpu_s: float = 2.0) -> Measured:
    return Measured(
        latencies_ms=latencies_ms,
        articles=len(latencies_ms),
        seconds=10.0,
        visible_per_s=9.0,
        transactions=20,
        worker_cpu_s=worker_cpu_s,
        broker_cpu_s=1.0,
        client_cores=0.01,
        others_cores=0.0,
        publisher_late_p99_ms=0.2,
        batching=BATCHING,
    )


def _repeated(
    p50_ms: float,
    *,
    mix: Mix = "headlines",
    load: float = 0.1,
    who: str = "now",
    articles: int = 10,
    repetitions: int = 1,
) -> Repeated:
    return Repeated(Point(mix, load, who), [_measured([p50_ms] * articles)] * repetitions)


def _results(
    *points: Repeated, against: Policy | None = None, backlogs: dict[tuple[Mix, str], list[Run]] | None = None
) -> Results:
    traced = Repeated(Point("headlines", 0.1, "now"), [replace(_measured([1.0, 3.0]), stages=STAGE_TIMES)])
    return Results({"headlines": 100.0}, points, [traced], backlogs or {}, against)


def _claims(*points: Repeated) -> dict[str, bool]:
    return {claim.text: claim.held for claim in outcome(_results(*points)).claims}


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
    growing = _measured([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0])
    assert (5.0, 8.0) == (growing.values["p50_ms"], growing.values["p50_ms_of_the_last_third"])


def test_rate_counts_what_became_visible_between() -> None:
    """The interval is half-open, and the order of times does not matter."""
    assert 1.5 == rate_between([5.0, 1.0, 2.0, 3.0, 2.5, 0.5], 1.0, 3.0)
    assert 0.0 == rate_between([], 1.0, 3.0)


def test_costs_are_per_article_of_the_measured_time() -> None:
    """Ten articles in ten seconds, twenty transactions, two seconds of the worker's processor time, one of the broker's."""
    found = _measured([1.0] * 10).values
    assert (200.0, 100.0) == (found["worker_ms_per_article"], found["broker_ms_per_article"])
    assert (2.0, 0.5) == (found["transactions_per_s"], found["articles_per_transaction"])
    assert 1.1 == found["padded_per_real_token"]


def test_repetitions_together_have_a_99th_percentile() -> None:
    """Five repetitions of forty articles are two hundred."""
    assert _repeated(7.0, articles=40).p99_ms is None
    assert 7.0 == _repeated(7.0, articles=40, repetitions=5).p99_ms


def test_ratios_are_taken_repetition_by_repetition() -> None:
    """What disturbs both runs of one repetition cancels out."""
    ours = Repeated(Point("news", 0.5, "now"), [_measured([1.0], worker_cpu_s=cpu_s) for cpu_s in (1.0, 6.0)])
    theirs = Repeated(Point("news", 0.5, "other"), [_measured([1.0], worker_cpu_s=cpu_s) for cpu_s in (1.0, 4.0)])
    assert Spread(1.25, 1.0, 1.5) == ours.ratio(theirs, "worker_ms_per_article")


@pytest.mark.parametrize(
    ("mix", "load", "p50_ms", "p99_ms"),
    [("headlines", 0.1, 25.0, 60.0), ("news", 0.1, 100.0, 200.0), ("headlines", 0.5, 50.0, None)],
)
def test_claims_are_held_at_the_aim_and_missed_above_it(
    mix: Mix, load: float, p50_ms: float, p99_ms: float | None
) -> None:
    """A percentile equal to its aim is held; one that is a tenth of a millisecond above is missed."""
    tail = [p50_ms if p99_ms is None else p99_ms] * 2
    at_aim = Repeated(Point(mix, load, "now"), [_measured([p50_ms] * 98 + tail)])
    above = Repeated(Point(mix, load, "now"), [_measured([p50_ms + 0.1] * 98 + [each + 0.1 for each in tail])])
    count = 1 if p99_ms is None else 2
    assert [True] * count == list(_claims(at_aim).values())
    assert [False] * count == list(_claims(above).values())


def test_p99_of_too_few_articles_is_missed_and_says_why() -> None:
    """An aim that was not measured is not held."""
    [_, (text, held)] = _claims(_repeated(1.0, articles=99)).items()
    assert not held
    assert "only 99 articles" in text


def test_only_the_present_settings_are_judged_by_the_aims() -> None:
    """The naive loop and the other settings are shown beside them."""
    assert {} == _claims(_repeated(900.0, who=NAIVE), _repeated(900.0, who="other"), _repeated(900.0, load=0.9))


def _against(ours: Repeated, theirs: Repeated, **more: dict[tuple[Mix, str], list[Run]]) -> list[Claim]:
    claims = outcome(_results(ours, theirs, against=OTHER, **more)).claims
    return [claim for claim in claims if "of other" in claim.text]


def test_costs_at_half_and_nine_tenths_must_be_those_of_the_other_settings() -> None:
    """Within two percent. The claim names what is worse and where."""
    same = _against(_repeated(1.0, load=0.5), _repeated(1.0, load=0.5, who="other"))
    assert [True] * 3 == [claim.held for claim in same]
    dear = Repeated(Point("headlines", 0.5, "now"), [_measured([1.0] * 10, worker_cpu_s=2.05)])
    [missed] = [claim for claim in _against(dear, _repeated(1.0, load=0.5, who="other")) if not claim.held]
    assert "headlines at 50%: worker's processor time per article 1.02" in missed.text
    assert [] == _against(_repeated(1.0), _repeated(1.0, who="other"))


def test_latency_near_capacity_must_not_grow() -> None:
    """At 90 % p50 is compared, too."""
    [missed] = [
        claim
        for claim in _against(_repeated(103.0, load=0.9), _repeated(100.0, load=0.9, who="other"))
        if not claim.held
    ]
    assert "headlines at 90%: p50 1.03" in missed.text


def test_throughput_of_a_backlog_must_not_fall() -> None:
    """Two percent less is held, three are not."""
    quiet, tokens = Load(1.0, 0.5, 0.1, 0.0), {"padded_tokens": 11, "real_tokens": 10}

    def held(rate: float) -> list[bool]:
        backlogs: dict[tuple[Mix, str], list[Run]] = {
            ("news", "now"): [Run(rate, quiet, tokens)],
            ("news", "other"): [Run(100.0, quiet, tokens)],
        }
        claims = _against(_repeated(1.0), _repeated(1.0, who="other"), backlogs=backlogs)
        return [claim.held for claim in claims if "throughput" in claim.text]

    assert [True] == held(98.0)
    assert [False] == held(97.0)


def test_stages_are_a_table_that_sums_to_the_total_and_a_bar() -> None:
    """The last row of the table is the sum of the means, and the bar's parts are as long together."""
    found = outcome(_results(_repeated(1.0)))
    [table] = [table for table in found.tables if "millisecond" in table.title]
    assert [*STAGES, "total"] == [row[0] for row in table.rows]
    assert ["total", "1.00", "38.00", "57.00"] == list(table.rows[-1])
    [bars] = [plot for plot in found.plots if plot.kind == "stacked"]
    assert 38.0 == sum(series.y[0] for series in bars.series)


def test_p99_is_drawn_only_where_there_is_one() -> None:
    """The p99 line has only the two points with enough articles."""
    points = [_repeated(10.0), _repeated(20.0, load=0.5, articles=100), _repeated(30.0, load=0.9, articles=200)]
    plots = {plot.name: plot for plot in outcome(_results(*points)).plots}
    series = {series.name: series for series in plots["latency-load"].series}
    assert [10.0, 50.0, 90.0] == list(series["headlines, now, p50"].x)
    assert [50.0, 90.0] == list(series["headlines, now, p99"].x)


@pytest.mark.parametrize("rate_per_s", [0.001, 20.0])
def test_the_first_seconds_of_a_run_do_not_count(rate_per_s: float) -> None:
    """What counts begins with the first article after them, and there is always one."""
    traffic = Traffic.at("headlines", rate_per_s, 3.0, seed=1)
    assert traffic.due_s[traffic.first_counted] >= WARM_UP_S
    assert all(due_s < WARM_UP_S for due_s in traffic.due_s[: traffic.first_counted])
    assert len(traffic.values) == len(traffic.due_s)
