"""What a leg gives back: figures for machines, a table and plots for people. Plain data; drawn by drawing.py and page.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text, ready to print: numbers are formatted by the leg, which knows how many digits it measured."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a plot, or one group of bars. For bars `x` may be names. `low` and `high`: the spread, if measured."""

    name: str
    x: Sequence[float] | Sequence[str]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


@dataclass(frozen=True, slots=True)
class Plot:
    """`limit`: a line that matters, such as what is aimed at, as (name, y). `name` is the file's name, without ending."""

    name: str
    title: str
    kind: Literal["bars", "barh", "lines", "stacked"]
    x_label: str
    y_label: str
    series: Sequence[Series]
    limit: tuple[str, float] | None = None
    log_x: bool = False
    log_y: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """`figures` is JSON: it names units (`articles_per_s`, `p99_ms`). `claims`: what was aimed at, and whether it held."""

    figures: Mapping[str, Any]
    tables: Sequence[Table] = ()
    plots: Sequence[Plot] = ()
    claims: Sequence[Claim] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True)
class Claim:
    """One thing that this bench is there to show, said as a sentence with its number."""

    text: str
    held: bool
