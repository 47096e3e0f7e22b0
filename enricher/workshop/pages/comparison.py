"""The comparison of two models as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enricher.workshop.comparison.figures import (
    CHANGE_COLUMNS,
    COLUMNS,
    COST_COLUMNS,
    change_cells,
    cost_cells,
    row_cells,
)
from enricher.workshop.pages.evaluation import bounds, scores_plot, scores_table
from enricher.workshop.pages.frame import Badge, bullets, cards, facts, page, section, table
from enricher.workshop.pages.plots import Shares, plots_missing, shares_plot

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from enricher.workshop.comparison.figures import Comparison, Row, Verdict
    from enricher.workshop.scores import Evaluation

_COLOURS = (("lost", "second"), ("relabelled", "fourth"), ("moved", "fifth"), ("gained", "third"))


def comparison_page(
    comparison: Comparison, verdict: Verdict | None, scores: Sequence[Evaluation], remarks: Sequence[str]
) -> str:
    """A complete, self-contained HTML document."""
    title = f"{comparison.model_b.name} instead of {comparison.model_a.name}"
    badge = Badge("passed" if verdict.passed else "failed", good=verdict.passed) if verdict else None
    parts = [*_parts(comparison, verdict, remarks)]
    for each in scores:
        heading, figures = f"{each.model_name} on {each.gold_name}", (scores_plot(each.by_label), scores_table(each))
        parts.append(section(heading, " ".join(each.remarks), *figures))
    return page(title, f"{comparison.articles:,} articles", parts, badge)


def _parts(comparison: Comparison, verdict: Verdict | None, remarks: Sequence[str]) -> Iterator[str]:
    overall = comparison.overall
    yield plots_missing()
    yield cards(
        [
            (f"{comparison.changed_articles:,}", f"of {comparison.articles:,} articles change"),
            *(
                ("-" if share is None else f"{100 * share.value:.2f} %", f"{kind}: {overall.counts[kind]:,}")
                for kind, share in overall.shares.items()
            ),
        ]
    )
    if verdict and verdict.reasons:
        yield section("Verdict", "", bullets(verdict.reasons))
    if remarks:
        yield section("Remarks", "", bullets(remarks))
    note = "Shares are of A's findings; gained ones are of B's. Intervals are from a bootstrap over articles."
    yield section("By label", note, _plot(comparison.by_label))
    yield section("By length of article", "In tokens.", _plot(comparison.by_length))
    yield section("All figures", note, table(COLUMNS, [row_cells(row) for row in comparison.rows], best=0))
    if comparison.frequent:
        changes = [change_cells(each) for each in comparison.frequent]
        yield section("Most frequent changes", "", table(CHANGE_COLUMNS, changes))
    models = (comparison.model_a, comparison.model_b)
    yield section(
        "Cost", "On this machine, one after the other.", table(COST_COLUMNS, [cost_cells(each) for each in models])
    )
    digests = [(letter, f"{each.name}, sha256 {each.digest}") for letter, each in zip("AB", models, strict=True)]
    yield section("Models", "", facts(digests))


def _plot(rows: Sequence[Row]) -> str:
    shares = [
        Shares(kind, colour, [bounds(share) for row in rows for name, share in row.shares.items() if name == kind])
        for kind, colour in _COLOURS
    ]
    return shares_plot([f"{row.name} ({row.of_a:,})" for row in rows], shares)
