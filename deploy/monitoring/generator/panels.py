"""What a panel is, before it is Grafana's: a title, queries, a unit, and what the instruments say about it.

Queries are written short: `@` stands for the labels that choose workers, `@@` for those that choose whole groups (recorded
series know no single worker), `[~]` for the range that suits the picture's resolution.
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
    """One expression, and what its lines are called (`{{label}}` is filled in)."""

    short: str
    legend: str = ""

    @property
    def expression(self) -> str:
        """As Grafana gets it."""
        text = self.short
        for sign, meaning in _REPLACED:
            text = text.replace(sign, meaning)
        return text

    def asked(self, range_s: int = 60) -> str:
        """As Prometheus gets it from Grafana, with all groups and workers chosen."""
        text = self.expression.replace("$__rate_interval", f"{range_s}s")
        for variable, value in _SHOWN.items():
            text = text.replace(variable, value)
        return text


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture. `width` of 24, `height` in rows of Grafana's grid. `thresholds`: value and colour from there on."""

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
        """Its own note, then the descriptions of the instruments that it reads."""
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
    """What a panel may have besides; see `Panel`."""

    note: str
    thresholds: tuple[tuple[float, str], ...]
    stacked: bool
    top: float


def lines(title: str, unit: Unit, *queries: tuple[str, str], **details: Unpack[Details]) -> Panel:
    """Lines over time; each query with its legend."""
    return Panel(title, unit, tuple(Query(*query) for query in queries), **details)


def number(title: str, unit: Unit, short: str, **details: Unpack[Details]) -> Panel:
    """One large number."""
    return Panel(title, unit, (Query(short),), look=Look.NUMBER, width=4, height=4, **details)


def quantiles(title: str, series: str, unit: Unit = Unit.SECONDS, **details: Unpack[Details]) -> Panel:
    """Median, 90th and 99th percentile of a histogram."""
    shares = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
    queries = tuple(
        Query(f"histogram_quantile({share}, sum by (le) (rate({series}_bucket{{@}}[~])))", name)
        for name, share in shares
    )
    return Panel(title, unit, queries, **details)


def heatmap(title: str, series: str, unit: Unit, **details: Unpack[Details]) -> Panel:
    """A histogram over the whole width, a column for each moment."""
    query = Query(f"sum by (le) (increase({series}_bucket{{@}}[~]))", "{{le}}")
    return Panel(title, unit, (query,), look=Look.HEATMAP, width=24, **details)


def ratio(upper: str, lower: str) -> str:
    """One query over another."""
    return f"{upper} / {lower}"
