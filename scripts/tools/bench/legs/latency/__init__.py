"""The leg `latency`: time from publish to visible at 10, 50 and 90 % of capacity, and what it costs.

Capacity is measured first, as what becomes visible per second when more arrives than the worker can do, with the same
publisher and reader on the same cores. Arrivals are Poisson, fixed beforehand, and the same for all that are compared.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby

from tools.bench.bench import Bench
from tools.bench.legs.latency.point import (
    NAIVE,
    OURS,
    Measured,
    Point,
    Repeated,
    Traffic,
    measure_naive,
    measure_worker,
)
from tools.bench.load import Mix
from tools.bench.outcome import Claim, Outcome, Plot, Series, Table
from tools.bench.peers.processes import PeerProcess
from tools.bench.repeating import quiet
from tools.bench.watching import count_for, run_backlog

ABOUT = (
    "From publish to visible for a read_committed consumer, with open-loop Poisson arrivals: latency counts from when an "
    "article was due, so that a slow worker cannot hide the wait of later ones. Capacity is what becomes visible per "
    "second when 1.5 times the worker's backlog rate arrives. Broker, publisher and reader share its cores. The naive "
    "loop has no model: it polls up to 64 records or 0.1 s, and writes what came in one transaction."
)
LOADS = (0.1, 0.5, 0.9)
NAIVE_LOADS = LOADS[:2]
OVERLOAD = 1.5
"""Share of the backlog rate: certainly more than the worker can do beside publisher and reader."""
CAPACITY_S, QUICK_S = 6.0, 3.0
QUICK_ARTICLES = 10
SECONDS: dict[Mix, float] = {"headlines": 10.0, "news": 15.0}
"""Duration of one point. Fewer news articles arrive per second, so they get more time."""
AIMS_MS: dict[tuple[Mix, float], tuple[float, float | None]] = {
    ("headlines", 0.1): (25.0, 60.0),
    ("news", 0.1): (100.0, 200.0),
    ("headlines", 0.5): (50.0, None),
}
"""Aims for p50 and p99 by mix and load."""
_AROUND_S = 5.0
"""About what a point takes besides: topics, joining the group, leaving it."""

Step = tuple[Point, float, Callable[[], Measured]]
"""A step has the point that it measures, about how many seconds it takes, and the function."""


def measure(bench: Bench) -> Outcome:
    """Run the leg, and say how long it takes: five repetitions about 15 minutes."""
    points: defaultdict[Point, list[Measured]] = defaultdict(list)
    capacity = {mix: _capacity(bench, mix) for mix in SECONDS}
    with PeerProcess("tools.bench.peers.naive_worker") as naive:
        steps = [step for number in range(bench.repetitions) for step in _repetition(bench, capacity, naive, number)]
        left_s, pace, began_s, planned_s = (sum(seconds for _, seconds, _ in steps), 1.0, time.monotonic(), 0.0)
        for number, (point, seconds, contender) in enumerate(steps, 1):
            bench.say(f"{number} of {len(steps)}, about {left_s * pace / 60:.0f} min left: {point}")
            points[point].append(quiet(contender, bench.repetitions, bench.say))
            left_s, planned_s = left_s - seconds, planned_s + seconds
            pace = (time.monotonic() - began_s) / planned_s
    return outcome(capacity, [Repeated(*each) for each in points.items()])


def _capacity(bench: Bench, mix: Mix) -> float:
    bench.say(f"capacity, {mix}")
    seconds = QUICK_S if bench.quick else CAPACITY_S
    backlog_per_s = run_backlog(bench, mix, count_for(bench, mix, seconds)).rate
    return measure_worker(bench, Traffic.at(mix, OVERLOAD * backlog_per_s, seconds, seed=len(mix))).visible_per_s


def _repetition(bench: Bench, capacity: Mapping[Mix, float], naive: PeerProcess, number: int) -> Iterator[Step]:
    """One of each. What is compared runs one after the other, in turns the one and the other first."""
    for mix in SECONDS:
        for load in LOADS:
            traffic = _traffic(bench, mix, load, load * capacity[mix], number)
            contenders: list[tuple[str, Callable[[], Measured]]] = [(OURS, partial(measure_worker, bench, traffic))]
            if load in NAIVE_LOADS:
                contenders.append((NAIVE, partial(measure_naive, bench, traffic, naive)))
            for who, contender in contenders[:: -1 if number % 2 else 1]:
                yield Point(mix, load, who), traffic.seconds + _AROUND_S, contender


def _traffic(bench: Bench, mix: Mix, load: float, rate_per_s: float, number: int) -> Traffic:
    seconds = min(SECONDS[mix], max(QUICK_S, QUICK_ARTICLES / rate_per_s)) if bench.quick else SECONDS[mix]
    return Traffic.at(mix, rate_per_s, seconds, seed=10 * number + round(10 * load))


# ---- report


_COLUMNS = ("", "articles", "articles/s", "p50, ms", "p90, ms", "p99, ms", "p50 of the last third", "others, cores")
_COST_COLUMNS = (
    "", "transactions/s", "articles per transaction", "worker, ms per article", "broker, ms per article",
    "padded per real token", "tokens per batch", "one run, ms",
)  # fmt: skip
_BATCHING = {"padded_per_real_token": ".3f", "tokens_per_batch": ".0f", "run_ms": ".1f"}
_COSTS = {
    "transactions_per_s": ".1f",
    "articles_per_transaction": ".1f",
    "worker_ms_per_article": ".2f",
    "broker_ms_per_article": ".2f",
    **_BATCHING,
}
"""The values in those columns and their formats. The naive loop has no batches."""


def outcome(capacity: Mapping[Mix, float], points: Sequence[Repeated]) -> Outcome:
    figures = {"capacity_articles_per_s": dict(capacity), "points": [each.as_dict() for each in points]}
    claims = [claim for each in points for claim in _claims(each)]
    return Outcome(figures, [_table(capacity, points), _cost_table(points)], [_plot(points)], claims)


def _table(capacity: Mapping[Mix, float], points: Sequence[Repeated]) -> Table:
    late_ms = max(run.publisher_late_p99_ms for each in points for run in each.runs)
    capacities = ", ".join(f"{rate:.1f} {mix} a second" for mix, rate in capacity.items())
    return Table(
        "From publish to visible",
        _COLUMNS,
        [_row(each) for each in points],
        f"Capacity, beside publisher and reader: {capacities}. All repetitions together; in brackets p50 by repetition. "
        f"The publisher sent at most {late_ms:.1f} ms late (p99 of a repetition), which counts as latency.",
    )


def _row(each: Repeated) -> list[str]:
    spread = each.spread("p50_ms")
    return [
        str(each.point),
        str(len(each.latencies_ms)),
        f"{each.spread('articles_per_s').median:.1f}",
        f"{each.p50_ms:.0f} ({spread.low:.0f} to {spread.high:.0f})",
        f"{each.p90_ms:.0f}",
        "-" if each.p99_ms is None else f"{each.p99_ms:.0f}",
        f"{each.spread('p50_ms_of_the_last_third').median:.0f}",
        f"{each.spread('others_cores').high:.2f}",
    ]


def _cost_table(points: Sequence[Repeated]) -> Table:
    rows = [
        [
            str(each.point),
            *(
                f"{each.spread(name).median:{spec}}" if each.point.who != NAIVE or name not in _BATCHING else ""
                for name, spec in _COSTS.items()
            ),
        ]
        for each in points
    ]
    note = "Medians of the repetitions. The broker's time includes what it does for publisher and reader."
    return Table("What it costs", _COST_COLUMNS, rows, note)


def _plot(points: Sequence[Repeated]) -> Plot:
    """p50 and p99 of our worker; p99 only where there is one."""
    series = []
    ours = sorted((each for each in points if each.point.who == OURS), key=lambda each: each.point.mix)
    for mix, group in groupby(ours, key=lambda each: each.point.mix):
        ordered = sorted(group, key=lambda each: each.point.load)
        loads = [100 * each.point.load for each in ordered]
        series.append(Series(f"{mix}, p50", loads, [each.p50_ms for each in ordered]))
        enough = [(at, each.p99_ms) for at, each in zip(loads, ordered, strict=True) if each.p99_ms is not None]
        if enough:
            series.append(Series(f"{mix}, p99", [at for at, _ in enough], [ms for _, ms in enough]))
    return Plot("latency-load", "From publish to visible, by load", "lines", "load, % of capacity", "ms", series)


def _claims(each: Repeated) -> list[Claim]:
    """The aims of our worker."""
    point = each.point
    if point.who != OURS or (point.mix, point.load) not in AIMS_MS:
        return []
    aims = zip(("p50", "p99"), (each.p50_ms, each.p99_ms), AIMS_MS[point.mix, point.load], strict=True)
    return [_claim(each, name, ms, aim_ms) for name, ms, aim_ms in aims if aim_ms is not None]


def _claim(each: Repeated, name: str, ms: float | None, aim_ms: float) -> Claim:
    where = f"{each.point.mix} at {each.point.load:.0%} of capacity"
    if ms is None:
        return Claim(f"{where}: no {name} with only {len(each.latencies_ms)} articles, aim {aim_ms:g} ms", held=False)
    return Claim(f"{where}: {name} {ms:.0f} ms from publish to visible, aim at most {aim_ms:g} ms", held=ms <= aim_ms)
