"""Early batches against batches that wait: time from an article's arrival until its labels are there, and what they cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from enricher.worker.build.loaded_model import DEFAULT_EARLY_OVERHEAD
from enricher.workshop.simulator import EngineModel
from tools.bench.outcome import Claim, Plot, Series, Table
from tools.bench.simulator.report import CUT
from tools.bench.simulator.scenarios import OURS, Setting, Traffic, backlog, rules_for, under_load
from tools.bench.simulator.statistics import Statistics

LOADS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9)
MIXES = ("headlines", "news")
SINCE_S = 5.0
"""The average of the load begins at 0 and has reached the load by then."""
COST_AIM = 1.02
COST_LOADS = (0.5, 0.9)
Rows = Sequence["Case"]


@dataclass(frozen=True, slots=True)
class Case:
    """One stream of articles without and with early batches."""

    setting: Setting
    mix: str
    load: float
    late: Statistics
    early: Statistics

    @property
    def cost(self) -> float:
        """Thread time of an article with early batches, as a multiple of that without."""
        return self.early.thread_s_per_article / self.late.thread_s_per_article


def _setting(name: str, model: EngineModel, batch_tokens: int, early: float, simulated_s: float) -> Setting:
    rules = replace(rules_for(batch_tokens), run_overhead_tokens=model.run_overhead_tokens, early_overhead=early)
    return Setting(name, model, rules, simulated_s, 80 * batch_tokens)


_CPU, _GPU = DEFAULT_EARLY_OVERHEAD["cpu"], DEFAULT_EARLY_OVERHEAD["cuda"]
# CPUs: the embedded model on two cores of an AMD Zen 5; a run takes 2.2 ms and 0.067 ms per token in bf16. GPUs: not
# measured but assumed, 1 ms for a run and 500,000 tokens per second, by one thread or by two that share it.
SETTINGS = (
    _setting("CPU bf16", EngineModel(2, 14_925, 33), 1024, _CPU, 65),
    _setting("CPU fp32", EngineModel(2, 6_000, 16), 512, _CPU, 65),
    _setting("GPU, 1 thread", EngineModel(1, 500_000, 500, 0.0), 8192, _GPU, 12),
    _setting("GPU, 2 threads", EngineModel(2, 250_000, 250, 0.0), 8192, _GPU, 12),
)


def cases(mixes: Mapping[str, Sequence[int]], *, quick: bool) -> Iterator[Case]:
    """All devices, mixes and loads; articles come at random."""
    for setting, mix in product(SETTINGS, MIXES):
        seconds = SINCE_S + 2 if quick else setting.simulated_s
        simulated = replace(setting, simulated_s=seconds)
        best = backlog(simulated, CUT, mixes[mix], OURS).tokens_per_s
        for load in LOADS:
            late, early = (
                under_load(
                    replace(simulated, rules=replace(setting.rules, early_overhead=share)),
                    Traffic(mix, CUT, "random", load),
                    mixes[mix],
                    OURS,
                    capacity_tokens_per_s=best,
                    since_s=SINCE_S,
                )
                for share in (0.0, setting.rules.early_overhead)
            )
            yield Case(simulated, mix, load, late, early)


def figures(rows: Rows) -> dict[str, Any]:
    return {
        f"{case.setting.name} / {case.mix} / {case.load:.0%} / {name}": {
            "p50_s": statistics.latency_s(0.5),
            "p99_s": statistics.latency_s(0.99),
            "thread_s_per_article": statistics.thread_s_per_article,
            "padded_per_real": statistics.padded_per_real,
        }
        for case in rows
        for name, statistics in (("waiting", case.late), ("early", case.early))
    }


def table(rows: Rows) -> Table:
    """Without and with early batches, side by side."""
    columns = ["device: articles, load", "p50 ms", "early", "p99 ms", "early", "padded / real", "early", "thread time"]
    cells = [
        [
            f"{case.setting.name}: {case.mix}, {case.load:.0%}",
            *(
                f"{1e3 * statistics.latency_s(quantile):.1f}"
                for quantile, statistics in product((0.5, 0.99), (case.late, case.early))
            ),
            *(_padding(case.setting, statistics) for statistics in (case.late, case.early)),
            f"{case.cost - 1:+.1%}",
        ]
        for case in rows
    ]
    note = (
        "From arrival to the end of the article's last run. Thread time: of an article, against waiting batches. "
        "GPUs are a projection: 1 ms per run, 500,000 tokens/s, no padding."
    )
    return Table("Early batches against batches that wait", columns, cells, note)


def _padding(setting: Setting, statistics: Statistics) -> str:
    return "-" if setting.model.packs else f"{statistics.padded_per_real:.3f}"


def plot(rows: Rows, mix: str = "headlines") -> Plot:
    """Median time by load, of one mix, on a CPU and a GPU."""
    shown = (SETTINGS[0].name, SETTINGS[-1].name)
    series = [
        Series(
            f"{name}, {kind}",
            [100 * case.load for case in mine],
            [1e3 * (case.early if kind == "early" else case.late).latency_s(0.5) for case in mine],
        )
        for name in shown
        for mine in [[case for case in rows if (case.setting.name, case.mix) == (name, mix)]]
        for kind in ("waiting", "early")
    ]
    title = f"From arrival to labels, {mix} that come at random"
    return Plot("batching-freshness", title, "lines", "load, % of capacity", "p50, ms", series, log_y=True)


def claims(rows: Rows) -> Iterator[Claim]:
    """Early batches are fresher at low load, and cost next to nothing above."""
    for load in COST_LOADS:
        worst = max((case for case in rows if case.load == load), key=lambda case: case.cost)
        text = (
            f"At {load:.0%} of capacity early batches change the thread time of an article by at most {worst.cost - 1:+.1%} "
            f"({worst.setting.name}, {worst.mix}); aim {COST_AIM - 1:+.0%}."
        )
        yield Claim(text, worst.cost <= COST_AIM)
    slowest = max((case for case in rows if case.load <= 0.1), key=_gain)
    text = (
        f"Up to 10 % of capacity half of the articles have their labels after at most {_gain(slowest):.0%} of the time that "
        f"they take with waiting batches ({slowest.setting.name}, {slowest.mix})."
    )
    yield Claim(text, _gain(slowest) < 1)


def _gain(case: Case) -> float:
    return case.early.latency_s(0.5) / case.late.latency_s(0.5)
