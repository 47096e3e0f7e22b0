"""The present settings against others that were measured in turn with them: ratios and claims. Measures nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tools.bench.legs.latency.measured import Repeated
from tools.bench.load import Mix
from tools.bench.outcome import Claim, Table
from tools.bench.policy import Policy
from tools.bench.repeating import Run, Spread, ratios

TOLERANCE = 0.02
"""How much worse than the other settings a cost may be."""
COST_LOADS = (0.5, 0.9)
LATENCY_LOAD = 0.9
_NOW = Policy().name
Backlogs = Mapping[tuple[Mix, str], Sequence[Run]]

_COSTS = {
    "worker's processor time per article": "worker_ms_per_article",
    "broker's processor time per article": "broker_ms_per_article",
    "padded per real token": "padded_per_real_token",
}
_SHOWN = {"p50": "p50_ms", **_COSTS, "transactions per second": "transactions_per_s"}
"""The names of compared values, for readers and among the values of a repetition."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """Ours over the other's. `aim`: the bound of the median; None if there is none. `higher`: more is better."""

    what: str
    where: str
    spread: Spread
    aim: float | None = None
    higher: bool = False

    @property
    def held(self) -> bool:
        assert self.aim is not None
        return self.spread.median >= self.aim if self.higher else self.spread.median <= self.aim


def table_against(other: Policy, points: Sequence[Repeated], backlogs: Backlogs) -> Table:
    """One row per mix and load, and per backlog."""
    rows = [[each.where, each.what, str(each.spread), _aim(each)] for each in _ratios(other, points, backlogs)]
    columns = ("", "", f"now over {other.name}", "aim")
    note = f"{other.name}: {other}. Median and spread over the repetitions, which alternate."
    return Table(f"Against {other.name}", columns, rows, note)


def claims_against(other: Policy, points: Sequence[Repeated], backlogs: Backlogs) -> list[Claim]:
    """One per ratio with an aim."""
    return [
        Claim(f"{each.where}: {each.what} {each.spread} of {other.name}, aim {_aim(each)}", held=each.held)
        for each in _ratios(other, points, backlogs)
        if each.aim is not None
    ]


def figures_against(other: Policy, points: Sequence[Repeated], backlogs: Backlogs) -> dict[str, Any]:
    found = [
        {"where": each.where, "what": each.what, "aim": each.aim, **asdict(each.spread)}
        for each in _ratios(other, points, backlogs)
    ]
    return {
        "name": other.name,
        "settings": {group: dict(each) for group, each in other.changes.items()},
        "ratios": found,
    }


def _aim(ratio: Ratio) -> str:
    return "" if ratio.aim is None else f"{'at least' if ratio.higher else 'at most'} {ratio.aim:g}"


def _ratios(other: Policy, points: Sequence[Repeated], backlogs: Backlogs) -> Iterator[Ratio]:
    by_point = {(each.point.mix, each.point.load, each.point.who): each for each in points}
    for (mix, load, who), ours in by_point.items():
        theirs = by_point.get((mix, load, other.name))
        if who == _NOW and theirs:
            for what, value in _SHOWN.items():
                yield Ratio(what, f"{mix} at {load:.0%}", ours.ratio(theirs, value), _bound(what, load))
    for (mix, who), runs in backlogs.items():
        if who == _NOW:
            rates = ratios(runs, backlogs[mix, other.name])
            yield Ratio("throughput", f"{mix} as a backlog", rates, 1 - TOLERANCE, higher=True)
            paddings = [
                _padding(run) / _padding(base) for run, base in zip(runs, backlogs[mix, other.name], strict=True)
            ]
            yield Ratio("padded per real token", f"{mix} as a backlog", Spread.of(paddings), 1 + TOLERANCE)


def _bound(what: str, load: float) -> float | None:
    aimed = (what in _COSTS and load in COST_LOADS) or (what == "p50" and load == LATENCY_LOAD)
    return 1 + TOLERANCE if aimed else None


def _padding(run: Run) -> float:
    return float(run.detail["padded_tokens"] / run.detail["real_tokens"])
