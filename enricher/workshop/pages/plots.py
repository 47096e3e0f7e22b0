"""The plots that the pages use: SVG where matplotlib is installed, else tables of the same figures. Data in, HTML out.

matplotlib belongs to the extra `reports`; drawing.py, which imports it, is loaded when the first plot is drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from enricher.distribution import install_command
from enricher.workshop.pages.frame import key, remark, table

if TYPE_CHECKING:
    from types import ModuleType

HOW_TO_GET_PLOTS = (
    f"There are tables instead of plots, because matplotlib is not installed. For plots: {install_command('reports')}"
)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two values with the same name, and how many gold entities or texts are behind them."""

    name: str
    first: float
    second: float
    weight: int


@dataclass(frozen=True, slots=True)
class Range:
    """A value with its interval; a `strong` one is drawn larger."""

    name: str
    value: float
    low: float
    high: float
    strong: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """Points joined by a line, and the name of its colour."""

    name: str
    colour: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Shares:
    """A share with its interval for each of the plot's names: value, low, high, all from 0 to 1; None without a value."""

    name: str
    colour: str
    values: Sequence[tuple[float, float, float] | None]


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts by power of ten: the first bar begins at ten to the power of `first`, each is `step` powers wide."""

    counts: Sequence[int]
    first: float
    step: float
    label: str


def plots_missing() -> str:
    """A line of HTML that says how to get plots; empty where they can be drawn."""
    return "" if _can_draw() else remark(HOW_TO_GET_PLOTS)


def pairs_plot(pairs: Sequence[Pair], names: tuple[str, str], what: str) -> str:
    """Two joined dots per name, with a legend: `names`. `what` is counted by the weights."""
    if not _can_draw():
        rows = [[each.name, f"{each.weight:,}", f"{each.first:.4f}", f"{each.second:.4f}"] for each in pairs]
        return table(["", what, *names], rows)
    legend = key(zip(("base", "main"), names, strict=True))
    return f"{legend}{_drawing().draw_pairs(pairs, what)}"


def ranges_plot(ranges: Sequence[Range], label: str, limit: float | None = None) -> str:
    """A row per name with value and interval; zero, and the limit as a dashed line. `label` names the axis."""
    if not _can_draw():
        rows = [[each.name, f"{each.value:+.2f}", f"{each.low:+.2f} to {each.high:+.2f}"] for each in ranges]
        return table([label, "value", "interval"], rows)
    return str(_drawing().draw_ranges(ranges, label, limit))


def shares_plot(names: Sequence[str], shares: Sequence[Shares]) -> str:
    """A row per name, in it a dot and an interval for each of `shares`, in per cent; with a legend."""
    if not _can_draw():
        cells = [[_percent(each.values[row]) for each in shares] for row in range(len(names))]
        return table(
            ["", *(each.name for each in shares)], [[name, *row] for name, row in zip(names, cells, strict=True)]
        )
    legend = key((each.colour, each.name) for each in shares)
    return f"{legend}{_drawing().draw_shares(names, shares)}"


def _percent(value: tuple[float, float, float] | None) -> str:
    return "-" if value is None else "{:.2f} % ({:.2f} to {:.2f})".format(*(100 * each for each in value))


def histogram_plot(histogram: Histogram) -> str:
    """Bars over powers of ten; heights are square roots, so that rare large differences are visible."""
    if not _can_draw():
        low = [10.0 ** (histogram.first + histogram.step * number) for number in range(len(histogram.counts) + 1)]
        rows = [
            [f"{low[number]:.2g} to {low[number + 1]:.2g}", f"{count:,}"]
            for number, count in enumerate(histogram.counts)
            if count
        ]
        return table([histogram.label, "how many"], rows)
    return str(_drawing().draw_histogram(histogram))


def lines_plot(lines: Sequence[Line], x_label: str, y_label: str, marked: tuple[float, float] | None = None) -> str:
    """Lines over a logarithmic x, with a legend; `marked` gets a ring."""
    if not _can_draw():
        rows = [[line.name, f"{x:,g}", f"{y:,.1f}"] for line in lines for x, y in line.points]
        return table(["", x_label, y_label], rows)
    legend = key((line.colour, line.name) for line in lines)
    return f"{legend}{_drawing().draw_lines(lines, x_label, y_label, marked)}"


def _can_draw() -> bool:
    return find_spec("matplotlib") is not None


def _drawing() -> ModuleType:
    from enricher.workshop.pages import drawing  # noqa: PLC0415  matplotlib is of an extra, and takes a second to import

    return drawing
