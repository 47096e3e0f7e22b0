"""Rows of figures in the report of the quality gate, as pairs and ranges for the plots and as tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enricher.workshop.gate.report import ClassComparison
from enricher.workshop.pages.frame import table
from enricher.workshop.pages.plots import Histogram, Pair, Range, histogram_plot

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from enricher.workshop.gate.report import ClassComposition, Comparison, Composition, Logits, Row

POINTS = "F1 points against fp32, with 95 % interval"
_FEW = 20
"""Rows with fewer entities or texts are only in the tables: in a plot, one entity would look like a large difference."""


def pairs(prefix: str, rows: Sequence[Row]) -> list[Pair]:
    """F1 of both variants; `prefix` begins the names."""
    return [Pair(prefix + row.name, row.reference.f1, row.reduced.f1, row.reference.expected) for row in _weighty(rows)]


def ranges(name: str, comparison: Comparison | ClassComparison) -> list[Range]:
    """The losses over all texts, by type or class, and by length."""
    by_kind = comparison.by_class if isinstance(comparison, ClassComparison) else comparison.by_type
    rows = [*_weighty(by_kind), *_weighty(comparison.by_length)]
    details = [Range(f"{name} {row.name}", row.delta_points, row.low_points, row.high_points) for row in rows]
    overall = comparison.overall
    return [Range(name, overall.delta_points, overall.low_points, overall.high_points, strong=True), *details]


def differences_plot(logits: Logits) -> str:
    """How many logits differ by how much."""
    return histogram_plot(
        Histogram(logits.histogram, logits.histogram_from, logits.histogram_step, "absolute difference")
    )


def rows_table(rows: Sequence[Row], precision: str, what: str) -> str:
    """All figures; the first row stands out. `what` names what is counted."""
    columns = ["", what, "F1 fp32", f"F1 {precision}", "points", "95 %", "precision", "recall"]
    return table(columns, [_cells(row) for row in rows], best=0)


def compositions_table(parts: Iterable[tuple[Composition | ClassComposition, int, float]], what: str) -> str:
    """The changes by other batches. `parts`: each with the number of changed answers, and the share of equal ones.

    `what` names the answers.
    """
    columns = ["variant and batches", "runs", f"{what} that change", "equal", "largest change of a score", "F1"]
    rows = [
        [
            f"{each.variant}, {each.name}",
            f"{each.runs:,}",
            f"{changed:,}",
            f"{100 * equal:.3f} %",
            f"{each.largest_score_change:.2g}",
            f"{each.f1:.4f}",
        ]
        for each, changed, equal in parts
    ]
    return table(columns, rows)


def _weighty(rows: Sequence[Row]) -> list[Row]:
    """The rows with enough entities or texts; all rows if none has."""
    return [row for row in rows if row.reference.expected >= _FEW] or list(rows)


def _cells(row: Row) -> list[str]:
    return [
        row.name,
        f"{row.reference.expected:,}",
        f"{row.reference.f1:.4f}",
        f"{row.reduced.f1:.4f}",
        f"{row.delta_points:+.2f}",
        f"{row.low_points:+.2f} to {row.high_points:+.2f}",
        f"{row.reduced.precision:.4f}",
        f"{row.reduced.recall:.4f}",
    ]
