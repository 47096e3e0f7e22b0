"""The report of the leg `rebalance`: tables, a plot and claims. Measures nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tools.bench.legs.rebalance.joining import RATE_PER_S, Change
from tools.bench.legs.rebalance.parts import JOINING, LEAVING, parts_of, still_s
from tools.bench.outcome import Claim, Outcome, Plot, Table
from tools.bench.repeating import Spread, bars

AIM_S = 0.6
CLAIMED = 1
"""The group of the aim. A larger one is measured too, and its table says what it adds."""
KINDS = {"nothing": "nothing happens", "joins": "a worker joins", "leaves": "a worker leaves"}


def outcome(changes: Mapping[int, Sequence[Change]]) -> Outcome:
    """The outcome of the leg. `changes` by the number of workers that were running."""
    tables = [_pauses(changes)]
    for kind, names in (("joins", JOINING), ("leaves", LEAVING)):
        tables.append(_parts(kind, names, changes))
    figures = {str(running): [_figures_of(change) for change in each] for running, each in changes.items()}
    return Outcome(figures, tables, [_plot(changes)], _claims(changes))


def beyond_s(changes: Sequence[Change], kind: str) -> Spread:
    """The longest time without a record of one partition, beyond the same while nothing happens."""
    usual_s = max(change.longest_partition_gap_s for change in _of(changes, "nothing"))
    return Spread.of([max(0.0, change.longest_partition_gap_s - usual_s) for change in _of(changes, kind)])


def _of(changes: Sequence[Change], kind: str) -> Sequence[Change]:
    return [change for change in changes if change.kind == kind]


def _figures_of(change: Change) -> dict[str, Any]:
    return {
        "kind": change.kind,
        "longest_gap_s": change.longest_gap_s,
        "longest_partition_gap_s": change.longest_partition_gap_s,
        "worst_latency_s": change.worst_latency_s,
        "recoveries": change.recoveries,
        "parts_s": parts_of(change) if change.kind != "nothing" else {},
        "still_s": still_s(change) if change.kind != "nothing" else None,
    }


def _pauses(changes: Mapping[int, Sequence[Change]]) -> Table:
    rows = [
        [
            f"{running} running, {text}",
            str(Spread.of([change.longest_gap_s for change in _of(each, kind)])),
            str(Spread.of([change.longest_partition_gap_s for change in _of(each, kind)])),
            str(beyond_s(each, kind)) if kind != "nothing" else "",
            str(Spread.of([change.worst_latency_s for change in _of(each, kind)])),
            str(sum(change.recoveries for change in _of(each, kind))),
        ]
        for running, each in changes.items()
        for kind, text in KINDS.items()
    ]
    columns = (
        "", "longest time without a record, s", "of one partition, s", "beyond the usual, s",
        "worst from publish to visible, s", "recoveries so far",
    )  # fmt: skip
    return Table(f"When workers come and go, at {RATE_PER_S:g} headlines a second", columns, rows)


def _parts(kind: str, names: Mapping[str, str], changes: Mapping[int, Sequence[Change]]) -> Table:
    columns = ["ms", *(f"{running} running" for running in changes)]
    rows = [
        [text, *(_ms([parts_of(change).get(name) for change in _of(each, kind)]) for each in changes.values())]
        for name, text in names.items()
    ]
    rows.append(
        ["moved partitions read by nobody", *(_ms([still_s(c) for c in _of(each, kind)]) for each in changes.values())]
    )
    return Table(f"Where the time goes when {KINDS[kind]}", columns, rows)


def _ms(values_s: Sequence[float | None]) -> str:
    known = [1e3 * value for value in values_s if value is not None]
    return str(Spread.of(known)) if known else "not seen"


def _plot(changes: Mapping[int, Sequence[Change]]) -> Plot:
    names = list(KINDS.values())
    series = []
    for running, each in changes.items():
        spreads = [Spread.of([change.longest_partition_gap_s for change in _of(each, kind)]) for kind in KINDS]
        series.append(bars(f"{running} running", names, spreads))
    return Plot("rebalance", "Longest time without a record of one partition", "bars", "", "s", series)


def _claims(changes: Mapping[int, Sequence[Change]]) -> list[Claim]:
    claims = []
    for kind in ("joins", "leaves"):
        held_up = beyond_s(changes[CLAIMED], kind)
        text = f"beside one worker, {KINDS[kind]}: no partition stands still for over {AIM_S:g} s more than usual: {held_up}"
        claims.append(Claim(text, held=held_up.high <= AIM_S))
    return claims
