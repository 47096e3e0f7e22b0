"""Panels, independent of Grafana's JSON: a title, queries, a unit, and the descriptions of the instruments.

Queries are abbreviated: `@` stands for the labels that select workers, `@@` for those that select whole groups (recorded
series have no label for the worker), `[~]` for the range that fits the panel's resolution.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypedDict, Unpack

from deploy.monitoring.generator.exported import instruments_by_series
from deploy.monitoring.generator.expressions import metrics_of

_GROUPS = 'namespace=~"$namespace", job=~"$job"'
_WORKERS = f'{_GROUPS}, instance=~"$instance"'
_RANGE = "[$__rate_interval]"
_REPLACED = (("@@", _GROUPS), ("@", _WORKERS), ("[~]", _RANGE))
_SHOWN = {"$namespace": ".*", "$job": ".*", "$instance": ".*"}


class Unit(Enum):
    """Units as Grafana names them."""

    SECONDS = "s"
    BYTES = "bytes"
    SHARE = "percentunit"
    NUMBER = "short"
    PER_SECOND = "suffix:/s"
    CORES = "suffix: cores"


class Look(Enum):
    """Kinds of panels, as Grafana names them."""

    LINES = "timeseries"
    NUMBER = "stat"
    HEATMAP = "heatmap"
    TABLE = "table"


@dataclass(frozen=True, slots=True)
class Query:
    """One expression and the legend of its lines, in which Grafana fills in `{{label}}`."""

    short: str
    legend: str = ""

    @property
    def expression(self) -> str:
        """The expression in the dashboard, with Grafana's variables."""
        text = self.short
        for sign, meaning in _REPLACED:
            text = text.replace(sign, meaning)
        return text

    def asked(self, range_s: int = 60) -> str:
        """The expression that Grafana sends to Prometheus when all groups and workers are selected."""
        text = self.expression.replace("$__rate_interval", f"{range_s}s")
        for variable, value in _SHOWN.items():
            text = text.replace(variable, value)
        return text


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. `width` in 24ths, `height` in rows of Grafana's grid. `thresholds`: a value, and the colour from it on."""

    title: str
    unit: Unit
    queries: tuple[Query, ...]
    note: str = ""
    look: Look = Look.LINES
    width: int = 8
    height: int = 8
    thresholds: tuple[tuple[float, str], ...] = ()
    stacked: bool = False
    top: float | None = None

    @property
    def description(self) -> str:
        """The note, then the descriptions of the instruments in the queries."""
        known = instruments_by_series()
        names = [name for query in self.queries for name in sorted(metrics_of(query.expression))]
        said = dict.fromkeys(known[name].description for name in names if name in known)
        return "\n\n".join([*([self.note] if self.note else []), *said])


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


class Details(TypedDict, total=False):
    """Optional fields of `Panel`."""

    note: str
    thresholds: tuple[tuple[float, str], ...]
    stacked: bool
    top: float


def lines(title: str, unit: Unit, *queries: tuple[str, str], **details: Unpack[Details]) -> Panel:
    """A panel with lines over time, one query and legend per line."""
    return Panel(title, unit, tuple(Query(*query) for query in queries), **details)


def number(title: str, unit: Unit, short: str, **details: Unpack[Details]) -> Panel:
    """A panel with one large number."""
    return Panel(title, unit, (Query(short),), look=Look.NUMBER, width=4, height=4, **details)


def quantiles(title: str, series: str, unit: Unit = Unit.SECONDS, **details: Unpack[Details]) -> Panel:
    """A panel with median, 90th and 99th percentile of a histogram."""
    shares = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
    queries = tuple(
        Query(f"histogram_quantile({share}, sum by (le) (rate({series}_bucket{{@}}[~])))", name)
        for name, share in shares
    )
    return Panel(title, unit, queries, **details)


def heatmap(title: str, series: str, unit: Unit, **details: Unpack[Details]) -> Panel:
    """A panel with a histogram over time, over the whole width."""
    query = Query(f"sum by (le) (increase({series}_bucket{{@}}[~]))", "{{le}}")
    return Panel(title, unit, (query,), look=Look.HEATMAP, width=24, **details)


def ratio(upper: str, lower: str) -> str:
    """One query divided by another."""
    return f"{upper} / {lower}"
