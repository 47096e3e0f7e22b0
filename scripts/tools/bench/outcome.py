"""The result of a leg: figures for machines, tables and plots for people. Plain data; `drawing` and `page` render it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of text, ready to print: the leg formats numbers, because it knows their precision."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a plot, or one group of bars (`x` may be names). `low` and `high`: the spread, if measured."""

    name: str
    x: Sequence[float] | Sequence[str]
    y: Sequence[float]
    low: Sequence[float] | None = None
    high: Sequence[float] | None = None


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot. `name`: file name without suffix. `limit`: a reference line as (label, value)."""

    name: str
    title: str
    kind: Literal["bars", "barh", "lines", "stacked"]
    x_label: str
    y_label: str
    series: Sequence[Series]
    limit: tuple[str, float] | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """`figures`: JSON whose keys name units (`articles_per_s`, `p99_ms`). `claims`: the aims and whether they were met."""

    figures: Mapping[str, Any]
    tables: Sequence[Table] = ()
    plots: Sequence[Plot] = ()
    claims: Sequence[Claim] = field(default_factory=tuple)


@dataclass(frozen=True, slots=True)
class Claim:
    """One aim of the bench: a sentence with its number, and whether it held."""

    text: str
    held: bool
