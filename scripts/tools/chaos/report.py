"""The report of a run: a Markdown page, and a plot of throughput with the faults marked."""

from __future__ import annotations

import io
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from tools.chaos.run import Run

mpl.use("agg")

_COLUMNS = ("number", "at", "fault", "what", "healed after", "publishes again after", "exits")


def write_report(run: Run, folder: Path) -> None:
    """`chaos.md` and `chaos.png` into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "chaos.md").write_text(_markdown(run), encoding="utf-8")
    (folder / "chaos.png").write_bytes(draw(run))


def _markdown(run: Run) -> str:
    parts = [
        "# Chaos run",
        "",
        f"`{run.plan.command}`",
        "",
        *(f"- {each}" for each in (*run.verdict.split("; "), *_violations(run))),
        "",
        "![published per second](chaos.png)",
        "",
        *(f"| {' | '.join(row)} |" for row in (_COLUMNS, ["---"] * len(_COLUMNS), *_rows(run))),
        "",
    ]
    return "\n".join(parts)


def _violations(run: Run) -> list[str]:
    found = run.findings
    wrong = [f"{what}: {count}, such as {', '.join(found.wrong[what])}" for what, count in found.counts.items()]
    faults = [
        f"{each.name} at {each.applied_s:.0f} s: {'; '.join((*each.wrong, *each.slow))}"
        for each in run.outcomes
        if each.wrong or each.slow
    ]
    return [*wrong, *faults]


def _rows(run: Run) -> list[list[str]]:
    return [
        [
            str(number),
            f"{each.applied_s:.0f} s",
            each.name,
            each.about,
            f"{each.healed_s - each.applied_s:.1f} s",
            "never" if each.recovered_s is None else f"{each.recovered_s:.1f} s",
            "; ".join(f"{name} {' '.join(map(str, codes))}" for name, codes in each.exits.items()),
        ]
        for number, each in enumerate(run.outcomes, start=1)
    ]


_ROW_S = 300.0
"""Each row shows five minutes, so that single faults can be told apart."""


def draw(run: Run) -> bytes:
    """The plot as PNG bytes; faults are numbered as in the report's table and shaded until they healed."""
    last_s = max(run.per_second, default=0) + 1
    rows = max(1, -(-last_s // int(_ROW_S)))
    figure, axes = plt.subplots(rows, 1, figsize=(12, 2.4 * rows), layout="constrained", squeeze=False)
    top = max(run.per_second.values(), default=1)
    for row, each in enumerate(axes[:, 0]):
        begin_s, end_s = row * _ROW_S, min((row + 1) * _ROW_S, max(last_s, 60.0))
        seconds = range(int(begin_s), int(end_s))
        each.fill_between(seconds, [run.per_second.get(second, 0) for second in seconds], step="post", color="#2563eb")
        _mark(each, run, begin_s, end_s, top)
        each.set(xlim=(begin_s, begin_s + (_ROW_S if rows > 1 else end_s)), ylim=(0, top * 1.25))
        each.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_title("records visible per second; shaded: a fault, from injection to healing", loc="left")
    axes[-1, 0].set_xlabel("seconds")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100)
    plt.close(figure)
    return buffer.getvalue()


def _mark(axes: Axes, run: Run, begin_s: float, end_s: float, top: int) -> None:
    for number, each in enumerate(run.outcomes, start=1):
        if begin_s <= each.applied_s < end_s:
            axes.axvspan(
                each.applied_s, max(each.healed_s, each.applied_s + 0.5), color="#c2571a", alpha=0.25, linewidth=0
            )
            axes.text(each.applied_s, top * 1.12, str(number), fontsize=7, color="#17202b")
