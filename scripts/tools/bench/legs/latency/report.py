"""The report of the leg `latency`: tables, plots and claims. Measures nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from tools.bench.legs.latency.comparison import claims_against, figures_against, table_against
from tools.bench.legs.latency.measured import NAIVE, Repeated
from tools.bench.legs.latency.stages import SLOWEST, STAGES, StageTimes
from tools.bench.load import Mix
from tools.bench.outcome import Claim, Outcome, Plot, Series, Table
from tools.bench.policy import Policy
from tools.bench.repeating import Run

AIMS_MS: dict[tuple[Mix, float], tuple[float, float | None]] = {
    ("headlines", 0.1): (25.0, 60.0),
    ("news", 0.1): (100.0, 200.0),
    ("headlines", 0.5): (50.0, None),
}
"""Aims for p50 and p99 by mix and load."""
_NOW = Policy().name
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


@dataclass(frozen=True, slots=True)
class Results:
    """Everything that was measured. `backlogs`: by mix and name of the policy, if one is compared."""

    capacity: Mapping[Mix, float]
    points: Sequence[Repeated]
    traced: Sequence[Repeated]
    backlogs: Mapping[tuple[Mix, str], Sequence[Run]]
    against: Policy | None


def outcome(results: Results) -> Outcome:
    tables = [_table(results), _cost_table(results.points)]
    claims = [claim for each in results.points for claim in _claims(each)]
    figures: dict[str, Any] = {
        "capacity_articles_per_s": dict(results.capacity),
        "points": [each.as_dict() for each in results.points],
        "stages": [{"mix": each.point.mix, "who": each.point.who} | _stages(each).as_dict() for each in results.traced],
    }
    if other := results.against:
        tables.append(table_against(other, results.points, results.backlogs))
        claims += claims_against(other, results.points, results.backlogs)
        figures["against"] = figures_against(other, results.points, results.backlogs)
    tables += [_stage_table(list(traced), who) for who, traced in _by_who(results.traced)]
    return Outcome(figures, tables, [_load_plot(results.points), _stage_plot(results.traced)], claims)


# ---- tables


def _table(results: Results) -> Table:
    late_ms = max(run.publisher_late_p99_ms for each in results.points for run in each.runs)
    capacities = ", ".join(f"{rate:.1f} {mix} a second" for mix, rate in results.capacity.items())
    return Table(
        "From publish to visible",
        _COLUMNS,
        [_row(each) for each in results.points],
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


def _stage_table(traced: Sequence[Repeated], who: str) -> Table:
    """One column per mix for p50, mean, and the mean of the slowest."""
    columns, cells = [""], [[name] for name in [*STAGES, "total"]]
    for each in traced:
        stages = _stages(each)
        columns += [f"{each.point.mix}, p50", "mean", f"slowest {SLOWEST:.0%}, mean"]
        values = zip(stages.p50_ms(), stages.mean_ms(), stages.slowest_ms(), strict=True)
        rows = [*map(list, values), [each.p50_ms, sum(stages.mean_ms()), sum(stages.slowest_ms())]]
        for row, ms in zip(cells, rows, strict=True):
            row += [f"{value:.2f}" for value in ms]
    load = traced[0].point.load
    articles = ", ".join(f"{len(each.latencies_ms)} {each.point.mix}" for each in traced)
    return Table(
        f"Where each millisecond goes at {load:.0%} of capacity, {who}",
        columns,
        cells,
        f"Milliseconds; {articles}, in runs with clocks. Means sum to the total; medians do not.",
    )


# ---- plots


def _load_plot(points: Sequence[Repeated]) -> Plot:
    series = []
    for (mix, who), group in groupby(sorted(points, key=_of), key=_of):
        ordered = sorted(group, key=lambda each: each.point.load)
        loads = [100 * each.point.load for each in ordered]
        if who == NAIVE:
            continue
        series.append(Series(f"{mix}, {who}, p50", loads, [each.p50_ms for each in ordered]))
        enough = [(at, each.p99_ms) for at, each in zip(loads, ordered, strict=True) if each.p99_ms is not None]
        if enough:
            series.append(Series(f"{mix}, {who}, p99", [at for at, _ in enough], [ms for _, ms in enough]))
    return Plot("latency-load", "From publish to visible, by load", "lines", "load, % of capacity", "ms", series)


def _stage_plot(traced: Sequence[Repeated]) -> Plot:
    """Stacked bars of the means, with neighbouring stages of one kind together."""
    names = [f"{each.point.mix}, {each.point.who}" for each in traced]
    means = [dict(zip(STAGES, _stages(each).mean_ms(), strict=True)) for each in traced]
    series = [
        Series(part, names, [sum(ms for stage, ms in mean.items() if STAGES[stage] == part) for mean in means])
        for part in dict.fromkeys(STAGES.values())
    ]
    title = f"Where the time goes at {traced[0].point.load:.0%} of capacity"
    return Plot("latency-stages", title, "stacked", "mean ms from publish to visible", "", series)


def _of(each: Repeated) -> tuple[Mix, str]:
    return each.point.mix, each.point.who


def _by_who(traced: Sequence[Repeated]) -> list[tuple[str, list[Repeated]]]:
    return [
        (who, [each for each in traced if each.point.who == who])
        for who in dict.fromkeys(each.point.who for each in traced)
    ]


def _stages(each: Repeated) -> StageTimes:
    assert each.stages, "of traced repetitions"
    return each.stages


# ---- claims


def _claims(each: Repeated) -> list[Claim]:
    """The aims of the present settings."""
    point = each.point
    if point.who != _NOW or (point.mix, point.load) not in AIMS_MS:
        return []
    aims = zip(("p50", "p99"), (each.p50_ms, each.p99_ms), AIMS_MS[point.mix, point.load], strict=True)
    return [_claim(each, name, ms, aim_ms) for name, ms, aim_ms in aims if aim_ms is not None]


def _claim(each: Repeated, name: str, ms: float | None, aim_ms: float) -> Claim:
    where = f"{each.point.mix} at {each.point.load:.0%} of capacity"
    if ms is None:
        return Claim(f"{where}: no {name} with only {len(each.latencies_ms)} articles, aim {aim_ms:g} ms", held=False)
    return Claim(f"{where}: {name} {ms:.0f} ms from publish to visible, aim at most {aim_ms:g} ms", held=ms <= aim_ms)
