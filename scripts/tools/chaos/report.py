"""The report of a run: JSON for machines, a Markdown page, and a plot."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from statistics import median
from typing import TYPE_CHECKING, Any

import orjson

from tools import markdown
from tools.bench.machine import describe

if TYPE_CHECKING:
    from pathlib import Path

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
    from tools.chaos.picture import draw  # noqa: PLC0415  importing matplotlib takes a second

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
