"""The report of a run: JSON for machines, a Markdown page, and a plot of throughput with the faults marked."""

from __future__ import annotations

import io
from collections import Counter
from dataclasses import asdict
from statistics import median
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import orjson

from tools import markdown
from tools.bench.machine import describe

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.axes import Axes

    from tools.chaos.run import Run

NAME = "chaos"
_COLUMNS = (
    "at",
    "fault",
    "what",
    "healed after",
    "publishes again after",
    "limit",
    "all workers after",
    "exits",
    "cores",
)


def write_report(run: Run, folder: Path) -> None:
    """`chaos.json`, `chaos.md` and `chaos.png` into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{NAME}.json").write_bytes(orjson.dumps(_document(run), option=orjson.OPT_NON_STR_KEYS))
    (folder / f"{NAME}.md").write_text(_markdown(run), encoding="utf-8")
    (folder / f"{NAME}.png").write_bytes(draw(run))


def _document(run: Run) -> dict[str, Any]:
    seconds = range(max(run.per_second, default=0) + 1)
    return {
        "command": run.plan.command,
        "machine": describe(),
        "verdict": run.verdict,
        "good": run.good,
        "exactly_once": run.exactly_once,
        "seconds": run.seconds,
        "findings": asdict(run.findings) | {"counts": dict(run.findings.counts)},  # asdict copies a Counter wrongly
        "verified": run.verified,
        "stale_answers": run.stale_answers,
        "faults": [asdict(outcome) for outcome in run.outcomes],
        "exits": Counter(str(end.code) for end in run.exits),
        "published_per_second": [run.per_second.get(second, 0) for second in seconds],
    }


def _rows(run: Run) -> list[list[str]]:
    return [
        [
            f"{each.applied_s:.0f} s",
            each.name,
            each.about,
            f"{each.healed_s - each.applied_s:.1f} s",
            "never" if each.recovered_s is None else f"{each.recovered_s:.1f} s",
            f"{each.limit_s:.0f} s",
            "never" if each.whole_s is None else f"{each.whole_s:.1f} s",
            "; ".join(f"{name} {' '.join(map(str, codes))}" for name, codes in each.exits.items())
            + (" (unexpected)" if each.unexpected else ""),
            f"{each.busiest_cores:.2f}",
        ]
        for each in run.outcomes
    ]


def _summary(run: Run) -> list[list[str]]:
    """One row per kind: count, median and longest recovery, limit."""
    rows = []
    for name in dict.fromkeys(outcome.name for outcome in run.outcomes):
        of_kind = [each for each in run.outcomes if each.name == name]
        times = [float("inf") if each.recovered_s is None else each.recovered_s for each in of_kind]
        rows.append(
            [name, str(len(times)), f"{median(times):.1f} s", f"{max(times):.1f} s", f"{of_kind[0].limit_s:.0f} s"]
        )
    return rows


_SUMMARY_COLUMNS = ("fault", "times", "median recovery", "longest", "limit")


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
        *markdown.table(_SUMMARY_COLUMNS, _summary(run)),
        "",
        *markdown.table(_COLUMNS, _rows(run)),
        "",
    ]
    return "\n".join(parts)


def _violations(run: Run) -> list[str]:
    found = run.findings
    wrong = [f"{what}: {count}, such as {found.wrong[what][0]}" for what, count in found.counts.items()]
    late = [f"{each.name} at {each.applied_s:.0f} s: {each.about}" for each in run.late]
    surprising = [f"{each.name} at {each.applied_s:.0f} s: exit codes {each.unexpected}" for each in run.surprising]
    broken = [f"{each.name} at {each.applied_s:.0f} s: {'; '.join(each.broken)}" for each in run.broken]
    return [*wrong, *late, *surprising, *broken]


mpl.use("agg")


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
    for each in run.outcomes:
        if begin_s <= each.applied_s < end_s:
            axes.axvspan(
                each.applied_s, max(each.healed_s, each.applied_s + 0.5), color="#c2571a", alpha=0.25, linewidth=0
            )
            axes.text(each.applied_s, top * 1.12, str(each.number), fontsize=7, color="#17202b")
