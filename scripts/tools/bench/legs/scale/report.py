"""The report of the leg `scale`: tables, plots and claims. Measures nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tools.bench.machine import Load, describe
from tools.bench.outcome import Claim, Outcome, Plot, Series, Table
from tools.bench.repeating import Run, Spread, bars, others, rates

AIM = 0.9
Runs = Mapping[str, Sequence[Run]]
"""Runs by number of workers, as text; those with a waiting stub also by `often`."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Everything that this leg measures."""

    at_once: Runs
    waiting: Runs
    idle: Load
    device_tokens_per_s: float
    often_ms: float
    usually_ms: float


@dataclass(frozen=True, slots=True)
class CommitCost:
    """CPU milliseconds per transaction and per article, from runs that differ only in the number of transactions.

    `broker_article_ms`: everything else that the broker does for an article, from its arrival to its delivery.
    """

    broker_transaction_ms: Spread
    worker_transaction_ms: Spread
    broker_article_ms: Spread


def commit_cost(usually: Sequence[Run], often: Sequence[Run], idle_broker_cores: float) -> CommitCost:
    """From the same articles at the same rate in fewer and in more transactions."""
    broker, worker, article = [], [], []
    for few, many in zip(usually, often, strict=True):
        more = many.detail["transactions"] - few.detail["transactions"]
        broker.append((many.detail["broker_cpu_s"] - few.detail["broker_cpu_s"]) / more)
        worker.append((many.detail["worker_cpu_s"] - few.detail["worker_cpu_s"]) / more)
        idle_s = idle_broker_cores * few.load.seconds
        rest_s = few.detail["broker_cpu_s"] - idle_s - broker[-1] * few.detail["transactions"]
        article.append(rest_s / few.detail["articles"])
    return CommitCost(*(Spread.of([1e3 * value for value in values]) for values in (broker, worker, article)))


def outcome(scale: Scale) -> Outcome:
    cost = commit_cost(scale.waiting["1"], scale.waiting["often"], scale.idle.broker_cores)
    tables = [
        _throughput("Stub that answers at once: as far as the cores allow", scale.at_once),
        _throughput("Stub that waits as for a GPU: as far as the group allows", _sizes(scale.waiting)),
        _commits(scale, cost),
    ]
    return Outcome(_figures(scale, cost), tables, _plots(scale), _claims(scale))


def _sizes(runs: Runs) -> Runs:
    return {name: each for name, each in runs.items() if name.isdigit()}


def _detail(runs: Sequence[Run], name: str) -> Spread:
    return Spread.of([run.detail[name] for run in runs])


def _speedup(runs: Runs, name: str) -> float:
    """Ratio of medians: the runs of different crews are not pairs."""
    return rates(runs[name]).median / rates(runs["1"]).median


def _efficiency(runs: Runs, name: str) -> float:
    return _detail(runs[name], "articles_per_cpu_s").median / _detail(runs["1"], "articles_per_cpu_s").median


# ---- figures


def _figures(scale: Scale, cost: CommitCost) -> dict[str, Any]:
    return {
        "at_once": {name: _runs_figures(runs) for name, runs in scale.at_once.items()},
        "waiting": {name: _runs_figures(runs) for name, runs in scale.waiting.items()},
        "device_tokens_per_s": scale.device_tokens_per_s,
        "idle_broker_cores": scale.idle.broker_cores,
        "idle_workers_cores": scale.idle.own_cores,
        "commit": cost,
    }


def _runs_figures(runs: Sequence[Run]) -> list[dict[str, Any]]:
    return [{"articles_per_s": run.rate, "others_cores": run.load.others_cores, **run.detail} for run in runs]


# ---- tables


def _throughput(title: str, runs: Runs) -> Table:
    columns = (
        "workers", "articles/s", "per worker", "times one", "per core-second", "of one's",
        "workers, cores", "broker, cores", "others, cores",
    )  # fmt: skip
    note = "Per core-second: articles for each second of processor time of all workers together."
    return Table(title, columns, [_throughput_row(runs, name) for name in runs], note)


def _throughput_row(runs: Runs, name: str) -> list[str]:
    each = runs[name]
    return [
        name,
        str(rates(each)),
        f"{rates(each).median / int(name):.3g}",
        f"{_speedup(runs, name):.2f}",
        str(_detail(each, "articles_per_cpu_s")),
        f"{_efficiency(runs, name):.2f}",
        f"{_detail(each, 'worker_cores').median:.2f}",
        f"{_detail(each, 'broker_cores').median:.2f}",
        f"{others(each):.2f}",
    ]


def _commits(scale: Scale, cost: CommitCost) -> Table:
    rows = [
        [
            f"publishing every {interval_ms:g} ms",
            f"{rates(runs).median:.3g}",
            f"{_detail(runs, 'transactions_per_s').median:.3g}",
            f"{_detail(runs, 'worker_cores').median:.3f}",
            f"{_detail(runs, 'broker_cores').median:.3f}",
        ]
        for interval_ms, runs in (
            (scale.usually_ms, scale.waiting["1"]),
            (scale.often_ms, scale.waiting["often"]),
        )
    ]
    return Table(
        "What a commit costs: one worker, the same articles in more transactions",
        ("", "articles/s", "transactions/s", "worker, cores", "broker, cores"),
        rows,
        f"Processor time of one transaction more: broker {cost.broker_transaction_ms} ms, worker "
        f"{cost.worker_transaction_ms} ms. What else the broker does for an article, from its arrival to its delivery: "
        f"{cost.broker_article_ms} ms. Idle broker: {scale.idle.broker_cores:.3f} cores.",
    )


# ---- plots


def _plots(scale: Scale) -> list[Plot]:
    return [
        _throughput_plot("scale-waiting", "Workers that wait for a device: articles a second", _sizes(scale.waiting)),
        _throughput_plot("scale-at-once", "Workers whose model answers at once: articles a second", scale.at_once),
    ]


def _throughput_plot(name: str, title: str, runs: Runs) -> Plot:
    spreads = [rates(each) for each in runs.values()]
    together = bars("together", list(runs), spreads)
    ideal = Series("as many times one", list(runs), [spreads[0].median * int(size) for size in runs])
    return Plot(name, title, "bars", "workers", "articles/s", [together, ideal])


# ---- claims


def _claims(scale: Scale) -> list[Claim]:
    cores = describe()["cores"]
    most = max(scale.at_once, key=int)
    speedup, efficiency = _speedup(_sizes(scale.waiting), most), _efficiency(scale.at_once, most)
    return [
        Claim(
            f"{most} workers, each waiting for its own device, do {speedup:.2f} times what one does, aim at least "
            f"{AIM * int(most):.1f} ({cores} cores, shared with the broker)",
            held=speedup >= AIM * int(most),
        ),
        Claim(
            f"where cores are the limit ({cores} of them), {most} workers do {efficiency:.3f} of one's articles per "
            f"core-second, aim at least {AIM:g}",
            held=efficiency >= AIM,
        ),
    ]
