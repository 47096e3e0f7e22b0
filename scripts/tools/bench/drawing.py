"""Draws plots as PNG with matplotlib. Knows plots, not what they show."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from cycler import cycler
from matplotlib.axes import Axes

from tools.bench.outcome import Plot, Series

mpl.use("agg")
import matplotlib.pyplot as plt

COLOURS = ("#2563eb", "#c2571a", "#0f8a7a", "#8b3fc7", "#a8860b", "#5c6875", "#be185d", "#15803d")
STYLE: dict[Any, Any] = {
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e9edf2",
    "legend.frameon": False,
}


def save_png(plot: Plot, folder: Path) -> Path:
    """Write `folder/<name>.png`, 160 dots per inch."""
    path = folder / f"{plot.name}.png"
    with mpl.rc_context({**STYLE, "axes.prop_cycle": cycler(color=COLOURS)}):
        figure, axes = plt.subplots(figsize=(8, 4.2), layout="constrained")
        _KINDS[plot.kind](axes, plot.series)
        if plot.limit:
            name, at = plot.limit
            axes.axhline(at, color="#c0263a", linestyle="--", linewidth=1.2, label=name)
        axes.set(title=plot.title, xlabel=plot.x_label, ylabel=plot.y_label)
        if len(plot.series) > 1 or plot.limit:
            figure.legend(loc="outside lower center", ncols=4)  # outside, where it covers no data
        figure.savefig(path, dpi=160)
        plt.close(figure)
    return path


def _bars(axes: Axes, series: Sequence[Series]) -> None:
    """Horizontal ones, a group for each name."""
    height = 0.8 / len(series)
    for index, each in enumerate(series):
        places = [place + (index - (len(series) - 1) / 2) * height for place in range(len(each.y))]
        axes.barh(places, each.y, height * 0.92, xerr=_spread(each), label=each.name, ecolor="#17202b", capsize=2)
    axes.set_yticks(range(len(series[0].x)), [str(name) for name in series[0].x])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")


def _lines(axes: Axes, series: Sequence[Series]) -> None:
    for each in series:
        axes.plot(each.x, each.y, marker="o", markersize=4, label=each.name)
        if each.low is not None and each.high is not None:
            axes.fill_between(each.x, each.low, each.high, alpha=0.15)


def _spread(series: Series) -> list[list[float]] | None:
    if series.low is None or series.high is None:
        return None
    below = [max(0.0, y - low) for y, low in zip(series.y, series.low, strict=True)]
    above = [max(0.0, high - y) for y, high in zip(series.y, series.high, strict=True)]
    return [below, above]


_KINDS: dict[str, Callable[[Axes, Sequence[Series]], None]] = {"bars": _bars, "lines": _lines}
