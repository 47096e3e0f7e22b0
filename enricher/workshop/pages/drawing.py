"""Draws the plots as SVG with matplotlib: the same figures give the same text, byte for byte.

matplotlib draws in the colours of the light page. Afterwards each colour is replaced by a variable of the page's style, so
that a plot is dark where its page is dark. Texts stay texts, in the page's font.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from enricher.workshop.pages.frame import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from enricher.workshop.pages.plots import Histogram, Line, Pair, Range, Shares

_WIDTH_PX = 1000
_PX_PER_INCH = 72.0
"""The SVG writer has 72 units to the inch, so that a figure's units are pixels."""
_MAX_NAME_CHARS = 32
_ROW_CHARS = 130
"""The names below a plot share a row, which has room for about so many characters."""
_MAX_POINTS = 6.0
"""Wider intervals, of small groups, are cut at the edge, so that those near the limit stay readable."""
_STYLE: dict[Any, Any] = {
    "font.size": 12,
    "svg.fonttype": "none",
    "svg.hashsalt": "enricher",
    "text.parse_math": False,
    "text.color": COLOURS["ink"],
    "axes.labelcolor": COLOURS["soft"],
    "axes.edgecolor": COLOURS["line"],
    "axes.axisbelow": True,
    "axes.facecolor": "none",
    "axes.spines.left": False,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.facecolor": "none",
    "grid.color": COLOURS["grid"],
    "lines.solid_capstyle": "round",
    "xtick.color": COLOURS["line"],
    "xtick.labelcolor": COLOURS["soft"],
    "ytick.color": COLOURS["line"],
    "ytick.labelcolor": COLOURS["soft"],
    "ytick.left": False,
}
_NO_METADATA = dict.fromkeys(("Creator", "Date", "Format", "Type"))


def draw_pairs(pairs: Sequence[Pair], what: str) -> str:
    """Dots for both values of each pair, joined; below are the names and the weights."""

    def draw(axes: Axes) -> None:
        places = range(len(pairs))
        first, second = [each.first for each in pairs], [each.second for each in pairs]
        axes.vlines(places, first, second, color=COLOURS["main"], alpha=0.5, linewidth=2)
        axes.plot(places, first, "o", color=COLOURS["base"], markersize=13, markeredgewidth=0)
        axes.plot(places, second, "o", color=COLOURS["main"], markersize=8, markeredgewidth=0)
        values = [*first, *second]
        axes.set_ylim(max(0.0, min(values) - 0.05), min(1.0, max(values) + 0.05))
        axes.set_xlim(-0.5, len(pairs) - 0.5)
        room = min(_ROW_CHARS // len(pairs), _MAX_NAME_CHARS)
        axes.set_xticks(places, [_short(each.name, room) for each in pairs], color=COLOURS["ink"])
        for place, each in enumerate(pairs):
            axes.annotate(
                f"{each.weight:,}",
                (place, 0),
                (0, -22),
                axes.get_xaxis_transform(),
                "offset points",
                ha="center",
                va="top",
            )
        axes.set_xlabel(f"below each name: {what}", labelpad=20)
        axes.grid(axis="y")

    return _svg(320, draw)


def draw_ranges(ranges: Sequence[Range], label: str, limit: float | None) -> str:
    """A dot and an interval in each row, the value at its end."""
    bounds = [abs(bound) for each in ranges for bound in (each.low, each.high)]
    most = min(max(1.0, *bounds) * 1.05, _MAX_POINTS)

    def draw(axes: Axes) -> None:
        for place, each in enumerate(ranges):
            colour = COLOURS["bad" if _lost(each, limit) else "main"]
            low, value, high = np.clip((each.low, each.value, each.high), -most, most)
            axes.hlines(place, low, high, color=colour, alpha=0.5, linewidth=4 if each.strong else 3)
            axes.plot(value, place, "o", color=colour, markersize=11 if each.strong else 8, markeredgewidth=0)
            end = axes.get_yaxis_transform()
            axes.text(1.01, place, f"{each.value:+.2f}", transform=end, va="center", color=COLOURS["ink"])
        axes.axvline(0, color=COLOURS["base"], linewidth=1.5, zorder=0)
        if limit is not None:
            at = max(-limit, -most)
            axes.axvline(at, color=COLOURS["bad"], linestyle="--", linewidth=1, zorder=0)
            axes.text(at, -0.7, f"limit {-limit:g}  ", ha="right", va="center", color=COLOURS["bad"])
        axes.set(xlim=(-most, most), ylim=(len(ranges) - 0.4, -1), xlabel=label)
        axes.set_yticks(range(len(ranges)), [_short(each.name) for each in ranges], color=COLOURS["ink"])
        axes.grid(axis="x")

    return _svg(25 * len(ranges) + 80, draw)


def _lost(each: Range, limit: float | None) -> bool:
    """Whether more than the limit is lost: beyond chance, or by its value in the row that the verdict judges."""
    return limit is not None and (each.high < -limit or (each.strong and each.value < -limit))


def draw_shares(names: Sequence[str], shares: Sequence[Shares]) -> str:
    """Rows from the top down; the axis ends at the largest bound."""
    bounds = [value[2] for each in shares for value in each.values if value is not None]
    most = min(1.0, max([0.01, *bounds]) * 1.02)

    def draw(axes: Axes) -> None:
        for number, each in enumerate(shares):
            shift, colour = (number + 0.5) / len(shares) - 0.5, COLOURS[each.colour]
            for row, value in enumerate(each.values):
                if value is not None:
                    middle, low, high = (100 * bound for bound in value)
                    axes.hlines(row + 0.8 * shift, low, high, color=colour, alpha=0.5, linewidth=3)
                    axes.plot(middle, row + 0.8 * shift, "o", color=colour, markersize=7, markeredgewidth=0)
        axes.set(xlim=(-most, 101 * most), ylim=(len(names) - 0.4, -0.6), xlabel="per cent, with 95 % interval")
        axes.set_yticks(range(len(names)), [_short(name) for name in names], color=COLOURS["ink"])
        axes.grid(axis="x")

    return _svg((14 * len(shares) + 12) * len(names) + 60, draw)


def draw_histogram(histogram: Histogram) -> str:
    """Bars; the levels named on the left are the highest count and fractions of it."""

    def draw(axes: Axes) -> None:
        counts = histogram.counts
        starts = histogram.first + histogram.step * np.arange(len(counts))
        most = max([1, *counts])
        axes.set_yscale("function", functions=(lambda y: np.sqrt(np.maximum(y, 0)), np.square))
        axes.bar(starts, counts, 0.9 * histogram.step, align="edge", color=COLOURS["main"])
        powers = range(int(np.ceil(starts[0])), int(np.floor(starts[-1] + histogram.step)) + 1)
        axes.set_xticks(powers, [f"{10.0**power:g}" for power in powers])
        levels = [level for level in (most, most / 4, most / 25) if level >= 1]
        axes.set_yticks(levels, [f"{level:,.0f}" for level in levels])
        axes.set(ylim=(0, most), xlim=(starts[0], starts[-1] + histogram.step), xlabel=histogram.label)
        axes.grid(axis="y")

    return _svg(250, draw)


def draw_lines(lines: Sequence[Line], x_label: str, y_label: str, marked: tuple[float, float] | None) -> str:
    """Lines with a dot at each measurement."""

    def draw(axes: Axes) -> None:
        axes.set_xscale("log")
        for line in lines:
            x, y = zip(*line.points, strict=True)
            axes.plot(x, y, "o-", color=COLOURS[line.colour], linewidth=2.5, markersize=7, markeredgewidth=0)
        if marked:
            axes.plot(*marked, "o", color=COLOURS["ink"], markersize=18, markerfacecolor="none", markeredgewidth=2)
        xs = sorted({point[0] for line in lines for point in line.points})
        axes.set_xticks(xs, [f"{x:,g}" for x in xs])
        axes.minorticks_off()
        axes.set(ylim=(0, None), xlabel=x_label, ylabel=y_label)
        axes.yaxis.set_major_formatter("{x:,g}")
        axes.grid(axis="y")

    return _svg(340, draw)


def _short(name: str, max_chars: int = _MAX_NAME_CHARS) -> str:
    """The name, or its beginning. Characters that SVG cannot show become replacement characters."""
    shown = "".join(each if each.isprintable() else "\ufffd" for each in name)
    return shown if len(shown) <= max_chars else shown[: max(1, max_chars - 1)] + "\u2026"


def _svg(height_px: int, draw: Callable[[Axes], None]) -> str:
    """An SVG element with the drawing of `draw`, without clips, which would need `url()`."""
    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()  # whatever the user's own matplotlibrc says
        mpl.rcParams.update(_STYLE)
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # the page's font has it
        figure = Figure((_WIDTH_PX / _PX_PER_INCH, height_px / _PX_PER_INCH), layout="constrained")
        draw(figure.add_subplot())
        for artist in figure.findobj():
            artist.set_clip_on(False)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="svg", metadata=_NO_METADATA)
    return _element(buffer.getvalue().decode())


def _element(svg: str) -> str:
    """The element for a page: in the page's colours and font, without sizes, namespaces and names of groups."""
    view = re.search(r'viewBox="[^"]*"', svg)
    assert view, "matplotlib writes one"
    inside = re.sub(r"\s+", " ", svg[svg.index(">", svg.index("<svg")) + 1 :])
    return f'<svg {view[0]} role="img">' + re.sub(r"<[^>]*>", lambda tag: _restyle(tag[0]), inside)


def _restyle(tag: str) -> str:
    tag = re.sub(r"^<g id=\"[^\"]*\"", "<g", tag).replace("xlink:href", "href")
    tag = re.sub(r"font-family: [^;\"]*;? ?", "", tag)
    for name, colour in COLOURS.items():
        tag = tag.replace(colour, f"var(--{name})")
    return tag
