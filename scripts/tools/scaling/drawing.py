"""Draws two plots: one day under two metrics, and cost against age for each metric."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np

mpl.use("agg")
import matplotlib.pyplot as plt

from tools.bench.drawing import COLOURS, STYLE
from tools.scaling.day import HOUR_S, Counts
from tools.scaling.simulation import Outcome, Series

_GREY = "#5c6875"
_STEP_S = 60


def draw_day(outcomes: Sequence[Outcome], counts: Counts, target_age_s: float, path: Path) -> None:
    """Three panels over the day: what comes and what could be done; replicas; age of the oldest."""
    with mpl.rc_context(STYLE):
        figure, (rates, replicas, ages) = plt.subplots(3, 1, figsize=(9, 9), sharex=True, layout="constrained")
        hours = np.arange(0, len(counts), _STEP_S) / HOUR_S
        rates.fill_between(hours, _means(counts.astype(np.float64)), color="#cbd5e1", label="arrivals")
        for order, (outcome, colour) in enumerate(zip(outcomes, COLOURS, strict=False)):
            style: Any = {"color": colour, "linewidth": 1.2, "zorder": 3 - 0.1 * order}  # the first lies above
            rates.plot(hours, _means(outcome.capacity), **style, label=f"capacity, by {outcome.name}")
            label = f"by {outcome.name}: {outcome.replica_hours:.0f} replica-hours"
            replicas.step(hours, _most(outcome.replicas), **style, where="post", label=label)
            ages.plot(hours, np.maximum(_most(outcome.age_s), 0.5), **style, label=f"by {outcome.name}")
        ages.axhline(target_age_s, color=_GREY, linestyle="--", linewidth=1, label=f"target, {target_age_s:g} s")
        rates.set(title="Articles per second (simulated)", ylim=(0, None))
        replicas.set(title="Replicas, those that start included", ylim=(0, None))
        ages.set(title="Age of the oldest unprocessed article, seconds, worst of each minute", yscale="log")
        ages.set(ylim=(0.4, 3000))  # room for the legend above what it explains
        ages.set(xlabel="hour of the day", xlim=(0, len(counts) / HOUR_S), xticks=range(0, 25, 2))
        for axes in (rates, replicas, ages):
            axes.legend(loc="upper left", fontsize=8.5)
        _save(figure, path)


def draw_costs(groups: Sequence[tuple[str, Sequence[Outcome]]], path: Path) -> None:
    """Replica-hours against the 99th percentile of age; one line for each kind of metric."""
    with mpl.rc_context(STYLE):
        figure, axes = plt.subplots(figsize=(8, 4.6), layout="constrained")
        for (name, outcomes), colour in zip(groups, COLOURS, strict=False):
            x = [outcome.replica_hours for outcome in outcomes]
            y = [outcome.topic.age_quantile_s(0.99) for outcome in outcomes]
            axes.plot(x, y, "o-", color=colour, linewidth=1, label=name)
            for outcome, at_x, at_y in zip(outcomes, x, y, strict=True):
                axes.annotate(outcome.short, (at_x, at_y), xytext=(6, 3), textcoords="offset points", fontsize=8)
        axes.set(yscale="log", xlabel="replica-hours in the day", ylabel="age of 99 % when processed, s, at most")
        axes.set(title="What a day costs, and how old articles get (simulated)")
        axes.legend()
        _save(figure, path)


def _means(series: Series) -> Series:
    return np.asarray(series.reshape(-1, _STEP_S).mean(axis=1))


def _most(series: Series) -> Series:
    return np.asarray(series.reshape(-1, _STEP_S).max(axis=1))


def _save(figure: Any, path: Path) -> None:  # noqa: ANN401  matplotlib's own types say no more
    figure.savefig(path, dpi=140)
    plt.close(figure)
