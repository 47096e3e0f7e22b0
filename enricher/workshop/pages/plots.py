"""SVG plots: scales, axes, and the four kinds that the pages use. Data in, text out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

LEFT, RIGHT, TOP, BOTTOM = 62, 14, 14, 46
"""Margins around the drawing, in SVG units."""
MOST_POINTS = 6.0
"""Wider intervals, of small groups, are cut at the edge, so that those near the limit stay readable."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Values `low` to `high` onto positions `start` to `stop`, evenly or (`log`) by powers."""

    low: float
    high: float
    start: float
    stop: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The position of a value; values outside the scale are put on its edge."""
        low, high, value = (math.log(max(each, 1e-12)) if self.log else each for each in (self.low, self.high, value))
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + min(1.0, max(0.0, share)) * (self.stop - self.start)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two values with the same name, and the number of gold entities behind them."""

    name: str
    first: float
    second: float
    weight: int


@dataclass(frozen=True, slots=True)
class Range:
    """A value with its interval."""

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


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round values between `low` and `high`."""
    span = max(high - low, 1e-9)
    power = 10.0 ** math.floor(math.log10(span / about))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if span / (power * factor) <= about)
    first = math.ceil(low / step - 1e-9)
    return [round(index * step, 10) for index in range(first, math.floor(high / step + 1e-9) + 1)]


def pairs_plot(pairs: Sequence[Pair], colours: tuple[str, str]) -> str:
    """Two joined dots per name; y is F1. Below are the names and the numbers of entities."""
    width, height = 1000, 320
    values = [value for pair in pairs for value in (pair.first, pair.second)]
    y = Scale(max(0.0, min(values) - 0.05), min(1.0, max(values) + 0.05), height - BOTTOM - 12, TOP)
    step = (width - LEFT - RIGHT) / len(pairs)
    drawn = [_level(width, y, tick, f"{tick:.2f}") for tick in ticks(y.low, y.high)]
    for number, pair in enumerate(pairs):
        x = LEFT + step * (number + 0.5)
        drawn += [
            _bar((x, y(pair.first)), (x, y(pair.second)), colours[1], 2),
            _dot(x, y(pair.first), colours[0], 7, f"{pair.name}: {pair.first:.4f}"),
            _dot(x, y(pair.second), colours[1], 4.5, f"{pair.name}: {pair.second:.4f}"),
            _text(x, height - 34, pair.name, css="name"),
            _text(x, height - 18, f"{pair.weight:,}"),
        ]
    return _svg(width, height, [*drawn, _text(LEFT - 8, height - 18, "entities", anchor="end")])


def ranges_plot(ranges: Sequence[Range], limit: float) -> str:
    """A forest plot: a row per name with value and interval, zero, and the limit as a dashed line."""
    row, left, width = 25, 190, 1000
    height = TOP + row * len(ranges) + BOTTOM
    most = max([1.0, *(abs(bound) for each in ranges for bound in (each.low, each.high))]) * 1.05
    most = min(most, MOST_POINTS)
    x = Scale(-most, most, left, width - 90)
    foot = height - BOTTOM + 4
    drawn = []
    for tick in ticks(-most, most, 8):
        at = f"{x(tick):.1f}"
        drawn.append(f'<line class="grid" x1="{at}" x2="{at}" y1="{TOP}" y2="{foot}"/>')
        drawn.append(_text(x(tick), foot + 15, f"{tick:+g}" if tick else "0"))
    drawn += [
        f'<line class="axis" stroke-width="1.5" x1="{x(0):.1f}" x2="{x(0):.1f}" y1="{TOP}" y2="{foot}"/>',
        f'<line class="limit" x1="{x(-limit):.1f}" x2="{x(-limit):.1f}" y1="{TOP - 6}" y2="{foot}"/>',
        _text((left + width - 90) / 2, height - 8, "F1 points against fp32, with 95 % interval"),
        _text(x(-limit) - 6, TOP, f"limit {-limit:g}", anchor="end", css="limit-text"),
    ]
    for number, each in enumerate(ranges):
        y = TOP + row * (number + 0.65)
        lost = each.high < -limit or (each.strong and each.value < -limit)
        colour = "bad" if lost else "main"
        drawn += [
            _bar((x(each.low), y), (x(each.high), y), colour, 3 if each.strong else 2),
            _dot(x(each.value), y, colour, 5.5 if each.strong else 4, f"{each.name}: {each.value:+.2f}"),
            _text(left - 14, y + 4, each.name, anchor="end", css="name"),
            _text(width - 14, y + 4, f"{each.value:+.2f}", anchor="end", css="name"),
        ]
    return _svg(width, height, drawn)


def histogram_plot(counts: Sequence[int], first: float, step: float, label: str) -> str:
    """Bars over powers of ten; heights are square roots, so that rare large differences are visible."""
    width, height = 1000, 250
    most = max([1, *counts])
    x = Scale(first, first + step * len(counts), LEFT, width - RIGHT)
    y = Scale(0, math.sqrt(most), height - BOTTOM, TOP)
    levels = [level for level in (most, most / 4, most / 25) if level >= 1]
    drawn = [_level(width, y, math.sqrt(level), f"{level:,.0f}") for level in levels]
    powers = range(math.ceil(first), math.floor(x.high) + 1)
    drawn += [_text(x(power), height - 27, _power(power)) for power in powers]
    for number, count in enumerate(counts):
        low = first + step * number
        top = min(y(math.sqrt(count)), y(0) - 2) if count else y(0)
        drawn.append(
            f'<rect x="{x(low) + 1:.1f}" y="{top:.1f}" width="{x(low + step) - x(low) - 2:.1f}" '
            f'height="{y(0) - top:.1f}" rx="2" fill="var(--main)"><title>{count:,}</title></rect>'
        )
    drawn.append(f'<line class="axis" x1="{LEFT}" x2="{width - RIGHT}" y1="{y(0)}" y2="{y(0)}"/>')
    return _svg(width, height, [*drawn, _text(width / 2, height - 7, label)])


def lines_plot(lines: Sequence[Line], x_label: str, y_label: str, marked: tuple[float, float] | None = None) -> str:
    """Lines over a logarithmic x; `marked` gets a ring."""
    width, height = 1000, 340
    xs = sorted({point[0] for line in lines for point in line.points})
    x = Scale(xs[0], xs[-1], LEFT + 24, width - RIGHT - 24, log=True)
    y = Scale(0, max(point[1] for line in lines for point in line.points) * 1.06, height - BOTTOM, TOP + 14)
    drawn = [_level(width, y, tick, f"{tick:,g}") for tick in ticks(0, y.high)]
    drawn += [_text(x(value), height - 27, f"{value:,g}") for value in xs]
    for line in lines:
        path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in line.points)
        drawn.append(
            f'<polyline points="{path}" fill="none" stroke="var(--{line.colour})" stroke-width="2.5" '
            f'stroke-linejoin="round"/>'
        )
        drawn += [_dot(x(a), y(b), line.colour, 4, f"{line.name}: {b:,.1f} at {a:,g}") for a, b in line.points]
    if marked:
        ring = f'cx="{x(marked[0]):.1f}" cy="{y(marked[1]):.1f}" r="10" fill="none" stroke="var(--ink)"'
        drawn.append(f'<circle {ring} stroke-width="2"/>')
    labels = [_text(width / 2, height - 7, x_label), _text(4, 12, y_label, anchor="start")]
    return _svg(width, height, drawn + labels)


def _svg(width: float, height: float, drawn: Iterable[str]) -> str:
    return f'<svg viewBox="0 0 {width:g} {height:g}" role="img">{"".join(drawn)}</svg>'


def _dot(x: float, y: float, colour: str, radius: float, title: str) -> str:
    """The title appears under the pointer."""
    where = f'cx="{x:.1f}" cy="{y:.1f}" r="{radius}"'
    return f'<circle {where} fill="var(--{colour})"><title>{escape(title)}</title></circle>'


def _bar(start: tuple[float, float], stop: tuple[float, float], colour: str, width: float) -> str:
    """A thick pale line."""
    where = f'x1="{start[0]:.1f}" y1="{start[1]:.1f}" x2="{stop[0]:.1f}" y2="{stop[1]:.1f}"'
    return f'<line {where} stroke="var(--{colour})" stroke-width="{width}" stroke-opacity=".5" stroke-linecap="round"/>'


def _text(x: float, y: float, text: str, *, anchor: str = "middle", css: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" class="{css}">{escape(text)}</text>'


def _level(width: float, y: Scale, value: float, text: str) -> str:
    """A horizontal grid line and its name."""
    at = y(value)
    line = f'<line class="grid" x1="{LEFT}" x2="{width - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>'
    return line + _text(LEFT - 8, at + 4, text, anchor="end")


def _power(power: int) -> str:
    """10 to a power, in digits if that is short."""
    digits = str(power).translate(
        str.maketrans("-0123456789", "\u207b\u2070\u00b9\u00b2\u00b3\u2074\u2075\u2076\u2077\u2078\u2079")
    )
    return {0: "1", 1: "10", 2: "100", -1: "0.1", -2: "0.01"}.get(power, f"10{digits}")
