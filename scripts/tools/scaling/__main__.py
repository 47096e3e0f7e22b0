"""Simulates the day under each metric, prints a table, writes plots and figures."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from enricher.operate.scaling.policy import Rules
from tools.bench.outcome import Table
from tools.bench.printing import print_tables, write_figures
from tools.scaling import day, drawing
from tools.scaling.metrics import ByAge, ByBareAge, ByLag, ByQuery, Metric
from tools.scaling.simulation import Cluster, Outcome, simulate

_TARGETS_S = (15.0, 60.0, 300.0)
_SEED = 20
_WIDE = 120


def main(
    *,
    articles: Annotated[int, typer.Option(min=1000, help="Articles in the day.")] = 5_000_000,
    per_worker: Annotated[float, typer.Option(min=0.1, help="Articles per second of one worker.")] = 40.0,
    partitions: Annotated[int, typer.Option(min=1, help="Partitions of the input topic.")] = 48,
    most: Annotated[int, typer.Option(min=1, help="Maximum number of replicas (maxReplicaCount).")] = 24,
    target_age_s: Annotated[float, typer.Option(min=1, help="Target age in seconds, for the plot of the day.")] = 60.0,
    seed: Annotated[int, typer.Option(help="Random seed of the day's arrivals.")] = _SEED,
    out: Annotated[
        Path | None, typer.Option(help="Folder for plots and figures; without it nothing is written.")
    ] = None,
) -> None:
    """Simulate a day of news, scaled by age, by KEDA's own triggers and by lag: its cost, and the age of articles.

    Takes about a minute.
    """
    remarks = Console(stderr=True, highlight=False)
    remarks.print(f"drawing {articles:,} articles over a day")
    counts = day.arrivals(articles, Random(seed))  # noqa: S311  the same day every time is the point
    cluster = Cluster(partitions, min(most, partitions), per_worker)
    threshold = target_age_s * per_worker
    thresholds = sorted({10.0, 100.0, threshold / 4, threshold, 4 * threshold})
    by_age = [ByAge(Rules(target_age_s=target)) for target in sorted({*_TARGETS_S, target_age_s})]
    by_bare_age = [ByBareAge(target) for target in sorted({*_TARGETS_S, target_age_s})]
    by_lag = [ByLag(each) for each in thresholds]
    by_triggers = [ByQuery(target_age_s), *(ByQuery(target_age_s, each) for each in thresholds[1:])]
    metrics: list[Metric] = [*by_age, *by_triggers, *by_bare_age, *by_lag]
    outcomes: dict[str, Outcome] = {}
    with Progress(console=remarks) as progress:
        task = progress.add_task("simulating", total=len(metrics))
        for metric in metrics:
            outcomes[metric.name] = simulate(metric, counts, cluster, seed)
            progress.advance(task)
    console = Console(highlight=False, width=None if sys.stdout.isatty() else _WIDE)
    print_tables(console, [_table([*outcomes.values()], target_age_s)])
    if out:
        out.mkdir(parents=True, exist_ok=True)
        both = ByQuery(target_age_s, threshold / 4)
        pair = [outcomes[both.name], outcomes[ByLag(threshold / 4).name]]
        drawing.draw_day(pair, counts, target_age_s, out / "day.png")
        groups = [
            ("enricher scaler, by target age", [outcomes[metric.name] for metric in by_age]),
            ("KEDA's triggers: query, and lag by threshold", [outcomes[metric.name] for metric in by_triggers]),
            ("lag, by threshold in articles", [outcomes[metric.name] for metric in by_lag]),
            ("bare age, by target", [outcomes[metric.name] for metric in by_bare_age]),
        ]
        drawing.draw_costs(groups, out / "costs.png")
        facts = {
            "simulated": True,
            "articles": int(counts.sum()),
            "articles_per_s_of_a_worker": per_worker,
            "partitions": partitions,
            "most_replicas": cluster.most,
            "target_age_s": target_age_s,
            "seed": seed,
            # A lower bound for any autoscaler: every worker busy all the time, started when needed at no cost.
            "least_replica_hours": round(float(counts.sum()) / per_worker / day.HOUR_S, 2),
            "outcomes": [outcome.as_json(target_age_s) for outcome in outcomes.values()],
        }
        write_figures(out / "results.json", facts)
        remarks.print(f"written to {out}")


def _table(outcomes: list[Outcome], target_age_s: float) -> Table:
    columns = (
        "scaled by", "replica-h", "most", "h at 0", "changes", "p50 s", "p99 s", "p99.9 s", "max s",
        f"within {target_age_s:g} s",
    )  # fmt: skip
    rows = []
    for outcome in outcomes:
        facts = outcome.as_json(target_age_s)
        ages = [f"{facts[f'age_{name}_s']:.1f}" for name in ("p50", "p99", "p999", "max")]
        within = f"{100 * float(facts['share_within_target']):.2f} %"
        workers = (str(facts["most_replicas"]), f"{facts['hours_at_zero']:.2f}", str(facts["changes"]))
        rows.append((outcome.name, f"{outcome.replica_hours:.1f}", *workers, *ages, within))
    return Table("One day, simulated", columns, rows)


if __name__ == "__main__":
    typer.run(main)
