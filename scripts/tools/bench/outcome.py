"""The result of a leg: figures for machines, tables and plots for people; how they are printed and written.

Legs make plain data and print nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import orjson
from rich.console import Console
from rich.table import Table as RichTable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = dict[str, Any]
"""What was measured once, as a line of JSON whose keys name units."""
ROWS_FILE = "gpu.jsonl"
_FILE_WIDTH = 160
"""Characters of a line where the output is no terminal, so that tables keep their words whole."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text, ready to print."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    @classmethod
    def of(cls, title: str, rows: Sequence[Row], note: str = "") -> Self:
        """The values of rows that all have the same keys, which are the columns. At least one row."""
        return cls(title, [*rows[0]], [[cell(value) for value in row.values()] for row in rows], note)


def cell(value: object) -> str:
    """A value for people: a number with four digits, or whole from a thousand on."""
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value).replace("\n", " ")


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a plot, or one group of bars (`x` may be names). `low` and `high`: the spread, if measured."""

    name: str
    x: Sequence[float] | Sequence[str]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot. `name`: file name without suffix."""

    name: str
    title: str
    kind: Literal["bars", "lines"]
    x_label: str
    y_label: str
    series: Sequence[Series]


@dataclass(frozen=True, slots=True)
class Outcome:
    """`figures`: JSON whose keys name units (`articles_per_s`, `p99_ms`). `claims`: the aims and whether they were met."""

    figures: Mapping[str, Any]
    tables: Sequence[Table] = ()
    plots: Sequence[Plot] = ()
    claims: Sequence[Claim] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True)
class Claim:
    """One aim of the bench: a sentence with its number, and whether it held."""

    text: str
    held: bool


def print_outcome(outcome: Outcome) -> None:
    """Print tables and claims. The first column of a table is text, the others are numbers."""
    console = Console(width=None if sys.stdout.isatty() else _FILE_WIDTH)
    for table in outcome.tables:
        drawn = RichTable(title=table.title, caption=table.note or None, title_justify="left", caption_justify="left")
        for index, column in enumerate(table.columns):
            drawn.add_column(column, justify="right" if index else "left")
        for row in table.rows:
            drawn.add_row(*row)
        console.print(drawn)
    for claim in outcome.claims:
        console.print(f"{'held  ' if claim.held else 'MISSED'}  {claim.text}", highlight=False)


def write_figures(path: Path, figures: Mapping[str, Any]) -> None:
    """Write them as indented JSON; the folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(orjson.dumps(figures, option=orjson.OPT_INDENT_2) + b"\n")


def read_rows(folder: Path) -> list[Row]:
    """The rows of a run on a GPU, also of one that was killed while it wrote the last."""
    path = folder / ROWS_FILE
    rows: list[Row] = []
    for line in path.read_bytes().splitlines() if path.exists() else []:
        try:
            rows.append(orjson.loads(line))
        except orjson.JSONDecodeError:
            continue
    return rows


_COLOURS = ("#2563eb", "#c2571a", "#0f8a7a", "#8b3fc7", "#a8860b", "#5c6875", "#be185d", "#15803d")
_STYLE: dict[Any, Any] = {
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


def save_plots(outcome: Outcome, folder: Path) -> None:
    """Draw them as PNG; nothing where matplotlib is missing, as on some machines with a GPU."""
    if not find_spec("matplotlib"):
        return
    import matplotlib as mpl  # noqa: PLC0415  as above
    from cycler import cycler  # noqa: PLC0415  as above
    from matplotlib.figure import Figure  # noqa: PLC0415  as above

    for plot in outcome.plots:
        with mpl.rc_context({**_STYLE, "axes.prop_cycle": cycler(color=_COLOURS)}):
            figure = Figure(figsize=(8, 4.2), layout="constrained")
            axes = figure.subplots()
            _KINDS[plot.kind](axes, plot.series)
            axes.set(title=plot.title, xlabel=plot.x_label, ylabel=plot.y_label)
            if len(plot.series) > 1:
                figure.legend(loc="outside lower center", ncols=4)  # outside, where it covers no data
            figure.savefig(folder / f"{plot.name}.png", dpi=160)


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


def _spread(series: Series) -> list[list[float]] | None:
    if series.low is None or series.high is None:
        return None
    below = [max(0.0, y - low) for y, low in zip(series.y, series.low, strict=True)]
    above = [max(0.0, high - y) for y, high in zip(series.y, series.high, strict=True)]
    return [below, above]


_KINDS: dict[str, Callable[[Axes, Sequence[Series]], None]] = {"bars": _bars, "lines": _lines}
