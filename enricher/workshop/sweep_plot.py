"""The picture of `enricher model tune`: throughput over tokens per batch, drawn by matplotlib, which is of an extra."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from enricher.errors import FatalError, SettingsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enricher.workshop.sweep import Row

_LINE_STYLES = ("-", "--", ":", "-.")
"""One per concurrency, repeated if there are more."""


def require_matplotlib() -> None:
    """Raise SettingsError without matplotlib, before anything is measured."""
    if find_spec("matplotlib") is None:
        raise SettingsError("--plot needs matplotlib: pip install 'kafka-enricher[reports]'")


def draw_sweep(rows: Sequence[Row], title: str, path: Path) -> None:
    """Write a PNG with a line per window length and concurrency. Raises FatalError if the file cannot be written."""
    from matplotlib.figure import Figure  # noqa: PLC0415  of an extra

    figure = Figure((8, 4.5), layout="constrained")
    axes = figure.add_subplot()
    counts, lengths = (sorted({getattr(row, name) for row in rows}) for name in ("concurrency", "length_tokens"))
    for number, length in enumerate(lengths):
        for style, count in enumerate(counts):
            mine = [row for row in rows if (row.length_tokens, row.concurrency) == (length, count)]
            axes.plot(
                [row.batch_tokens for row in mine],
                [row.tokens_per_s for row in mine],
                color=f"C{number}",
                linestyle=_LINE_STYLES[style % len(_LINE_STYLES)],
                marker="o",
                label=f"windows of {length} tokens, {count} at once",
            )
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylim(bottom=0)
    axes.set(title=title, xlabel="tokens per batch", ylabel="tokens per second")
    axes.grid(alpha=0.3)
    axes.legend()
    try:
        figure.savefig(path, format="png", dpi=160)
    except OSError as error:
        raise FatalError(f"the plot cannot be written: {error}") from error
