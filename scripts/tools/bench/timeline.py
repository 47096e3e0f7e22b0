"""Draws a run of `scripts/bench fill` over time: device, waiting tokens, tokenizer and transactions."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from pathlib import Path

import matplotlib as mpl
from cycler import cycler

from tools.bench.drawing import COLOURS, STYLE
from tools.bench.fill import Filled, overlap

mpl.use("agg")
import matplotlib.pyplot as plt

_BINS = 240


def save_timeline(filled: Filled, path: Path) -> None:
    """Write a PNG, 160 dots per inch."""
    width_s = filled.seconds / _BINS
    edges = [number * width_s for number in range(_BINS)]
    device = _shares(filled, [(turn.began_s, turn.ended_s) for turn in filled.turns], width_s)
    tokenizer = _shares(filled, [(call.began_s, call.ended_s) for call in filled.tokenizations], width_s)
    moments, tokens = filled.queued()
    at = [bisect_right(moments, filled.began_s + edge + width_s) - 1 for edge in edges]
    waiting = [tokens[place] / filled.batch_tokens if place >= 0 else 0.0 for place in at]
    commits = [(call.began_s - filled.began_s, call.ended_s - call.began_s) for call in filled.transactions]
    with mpl.rc_context({**STYLE, "axes.prop_cycle": cycler(color=COLOURS)}):
        figure, rows = plt.subplots(4, sharex=True, figsize=(9, 6), layout="constrained", height_ratios=(3, 3, 2, 0.7))
        for axes, values, label, colour in zip(
            rows[:3],
            (device, waiting, tokenizer),
            ("device busy", "batches' worth\nof tokens ready", "tokenizer\nthreads busy"),
            COLOURS,
            strict=False,
        ):
            axes.fill_between(edges, values, step="post", color=colour, alpha=0.75, linewidth=0)
            axes.set(ylabel=label, ylim=(0, None))
        rows[1].axhline(1, color="#c0263a", linestyle="--", linewidth=1)
        rows[3].broken_barh(commits, (0, 1), color=COLOURS[3])
        rows[3].set(ylabel="commits", yticks=[], xlabel="seconds from the first record read", xlim=(0, filled.seconds))
        slower = f", {filled.cost.slower:g} times as slow" if filled.cost.slower != 1 else ""
        rows[0].set(
            title=f"{filled.articles} articles, batches of {filled.batch_tokens} tokens, an H100{slower}:\n"
            f"{filled.under_backlog:.3f} of the bare device under backlog, {filled.overall:.3f} in all"
        )
        rows[0].title.set_fontsize(10)
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=160)
        plt.close(figure)


def _shares(filled: Filled, intervals: Iterable[tuple[float, float]], width_s: float) -> Sequence[float]:
    """How many of the intervals there are at once in each bin, on average."""
    shares = [0.0] * _BINS
    for began_s, ended_s in intervals:
        first, last = (int((at_s - filled.began_s) / width_s) for at_s in (began_s, ended_s))
        for number in range(max(first, 0), min(last, _BINS - 1) + 1):
            left_s = filled.began_s + number * width_s
            shares[number] += overlap(began_s, ended_s, left_s, left_s + width_s) / width_s
    return shares
