"""The report of the batching leg: tables and plots."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tools.bench.outcome import Plot, Series, Table
from tools.bench.repeating import Spread
from tools.bench.simulator.cost import DEQUE
from tools.bench.simulator.lengths import Cut
from tools.bench.simulator.scenarios import ORDERS, OURS, Setting, Traffic
from tools.bench.simulator.statistics import Statistics

CUT, OTHER_CUT = Cut(128, 16), Cut(256, 64)
"""Windows of the embedded model, and of a model without advice."""
LOADS = (0.1, 0.3, 0.5, 0.7, 0.9)
TABLE_LOADS = (0.1, 0.5, 0.9)
PACKED_COST = 0.1
"""Cost of a padding token, as a share of a real one, if only attention computes it."""


@dataclass(frozen=True, slots=True)
class Backlog:
    """One simulated backlog."""

    setting: Setting
    cut: Cut
    mix: str
    order: str
    statistics: Statistics


@dataclass(frozen=True, slots=True)
class Load:
    """One simulated stream of articles."""

    setting: Setting
    traffic: Traffic
    order: str
    statistics: Statistics

    @property
    def name(self) -> str:
        traffic = self.traffic
        return f"{self.setting.name} / {traffic.mix} / {traffic.pattern} / {traffic.load:.0%} / {self.order}"


def backlog_table(setting: Setting, backlogs: Sequence[Backlog]) -> Table:
    """Table of padding and fill by mix and cut."""
    columns = ["articles, windows", *(f"padded / real, {order}" for order in ORDERS), "ours packed", "our fill"]
    rows: dict[str, list[str]] = {}
    for each in backlogs:
        if each.setting.name == setting.name:
            name, statistics = f"{each.mix}, {each.cut}", each.statistics
            rows.setdefault(name, [name]).append(f"{statistics.padded_per_real:.3f}")
            if each.order == OURS:
                packed = 1 + PACKED_COST * (statistics.padded_per_real - 1)
                rows[name] += [f"{packed:.4f}", f"{statistics.fill:.2f}"]
    note = "packed: computed tokens if only attention pads. The packed CUDA variant computes no padding."
    return Table(
        f"Under backlog, {setting.name}, {setting.rules.max_batch_tokens} tokens", columns, [*rows.values()], note
    )


def load_table(loads: Sequence[Load]) -> Table:
    """Table of waits, one row per stream at the shown loads."""
    columns = [
        "articles, arrivals, load",
        "order",
        "p50 ms",
        "p99 ms",
        "p99 own ms",
        "bound ms",
        "padded / real",
        "fill",
    ]
    rows = [
        [
            f"{each.setting.name}: {each.traffic.mix}, {each.traffic.pattern}, {each.traffic.load:.0%}",
            each.order,
            *(f"{wait_s * 1e3:.0f}" for wait_s in _waits_s(each)),
            f"{each.statistics.padded_per_real:.3f}",
            f"{each.statistics.fill:.2f}",
        ]
        for each in loads
        if each.traffic.load in TABLE_LOADS
    ]
    note = "own: the wait minus the engine's least time for earlier work. Load: share of our rate under backlog."
    return Table("Waits under load", columns, rows, note)


def _waits_s(each: Load) -> tuple[float, ...]:
    statistics = each.statistics
    return statistics.wait_s(0.5), statistics.wait_s(0.99), statistics.own_wait_s(0.99), each.setting.bound_s


def cost_table(costs: Mapping[str, Mapping[str, Spread]]) -> Table:
    """Table of microseconds per window, and as a multiple of a deque."""
    rows = [
        [f"{name}: {order}", str(spread), f"{spread.median / spreads[DEQUE].median:.1f}"]
        for name, spreads in costs.items()
        for order, spread in spreads.items()
    ]
    return Table("Cost of one window, add and next_batch", ["order", "us", "deques"], rows, "All mixed, under backlog.")


def padding_plot(setting: Setting, backlogs: Sequence[Backlog]) -> Plot:
    """Bars of padded per real tokens by mix and order."""
    mine = [each for each in backlogs if (each.setting.name, each.cut) == (setting.name, CUT)]
    series = [
        Series(order, [each.mix for each in cases], [each.statistics.padded_per_real for each in cases])
        for order in ORDERS
        for cases in [[each for each in mine if each.order == order]]
    ]
    title, name = f"Padding under backlog, {setting.name}", f"batching-padding-{setting.name[:3].lower()}"
    return Plot(name, title, "bars", "articles", "padded / real tokens", series, limit=("no padding", 1.0))


def wait_plot(setting: Setting, mix: str, loads: Sequence[Load]) -> Plot:
    """The p99 wait of one mix by load, with its bound."""
    mine = [
        each
        for each in loads
        if (each.setting.name, each.traffic.mix, each.traffic.pattern) == (setting.name, mix, "random")
    ]
    series = [
        Series(
            order,
            [100 * load for load in LOADS],
            [each.statistics.wait_s(0.99) * 1e3 for each in mine if each.order == order],
        )
        for order in ORDERS
    ]
    title, name = f"Waits of {mix} that come at random, {setting.name}", f"batching-wait-{setting.name[:3].lower()}"
    bound = ("max wait and one batch", setting.bound_s * 1e3)
    return Plot(name, title, "lines", "load, % of capacity", "p99 wait, ms", series, limit=bound, log_y=True)
