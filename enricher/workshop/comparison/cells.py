"""The figures of a comparison as cells of tables, for the terminal and for the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enricher.workshop.comparison.matching import KINDS

if TYPE_CHECKING:
    from enricher.workshop.comparison.figures import Frequent, Model, Row

COLUMNS = ("", "articles", "A", "B", *KINDS)
CHANGE_COLUMNS = ("change", "A", "B", "times", "examples")
COST_COLUMNS = ("model", "precision", "articles/s", "tokens/s", "processor s per 1,000 articles")


def row_cells(row: Row) -> list[str]:
    """A cell for each of `COLUMNS`."""
    shares = [
        f"{row.counts[kind]:,}: {share:.1f}" if share is not None and row.counts[kind] else f"{row.counts[kind]:,}"
        for kind, share in row.shares.items()
    ]
    return [row.name, f"{row.articles:,}", f"{row.of_a:,}", f"{row.of_b:,}", *shares]


def change_cells(change: Frequent) -> list[str]:
    """A cell for each of `CHANGE_COLUMNS`."""
    labels = [change.label_a or "-", change.label_b or "-"]
    return [change.kind, *labels, f"{change.count:,}", "; ".join(change.examples)]


def cost_cells(model: Model) -> list[str]:
    """A cell for each of `COST_COLUMNS`."""
    cost = model.cost
    if cost is None:
        return [model.name, model.precision, "-", "-", "-"]
    rates = [f"{cost.articles_per_s:,.1f}", f"{cost.tokens / cost.seconds:,.0f}", f"{cost.processor_s_per_1000:,.1f}"]
    return [model.name, model.precision, *rates]
