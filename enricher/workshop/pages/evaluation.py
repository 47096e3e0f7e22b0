"""The scores of a model on a gold set as a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enricher.workshop.pages.frame import bullets, cards, facts, page, section, table
from enricher.workshop.pages.plots import Shares, plots_missing, shares_plot
from enricher.workshop.scores import SCORE_COLUMNS, score_cells

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from enricher.workshop.gate.shares import Score, Share
    from enricher.workshop.scores import Evaluation


def evaluation_page(evaluation: Evaluation) -> str:
    """A complete, self-contained HTML document."""
    title = f"{evaluation.model_name} on {evaluation.gold_name}"
    return page(title, f"{evaluation.texts:,} texts; {evaluation.variant}", _parts(evaluation))


def _parts(evaluation: Evaluation) -> Iterator[str]:
    overall = evaluation.overall
    yield plots_missing()
    yield cards(
        [
            (_value(overall.f1), "F1"),
            (_value(overall.precision), "precision"),
            (_value(overall.recall), "recall"),
            (f"{overall.expected:,}", "labels in the gold set"),
            (f"{overall.predicted:,}", "found"),
        ]
    )
    if evaluation.remarks:
        yield section("Remarks", "", bullets(evaluation.remarks))
    yield section("By label", "", scores_plot(evaluation.by_label))
    yield section("By length of text", "In tokens.", scores_plot(evaluation.by_length))
    note = "Intervals are from a bootstrap over texts."
    yield section("All figures", note, scores_table(evaluation))
    yield section(
        "Measured",
        "",
        facts(
            [
                ("model", f"{evaluation.model_name}, sha256 {evaluation.model_digest}"),
                ("variant", evaluation.variant),
                ("gold set", f"{evaluation.gold_name}, sha256 {evaluation.gold_digest}"),
                ("windows", f"{evaluation.windows:,}"),
            ]
        ),
    )


def scores_table(evaluation: Evaluation) -> str:
    """All scores with their intervals."""
    return table(SCORE_COLUMNS, [score_cells(each) for each in evaluation.scores], best=0)


def scores_plot(scores: Sequence[Score]) -> str:
    """A plot of precision, recall and F1 of each score."""
    kinds = (("precision", "second"), ("recall", "third"), ("f1", "main"))
    shares = [Shares(name, colour, [bounds(getattr(each, name)) for each in scores]) for name, colour in kinds]
    return shares_plot([f"{each.name} ({each.expected:,})" for each in scores], shares)


def bounds(share: Share | None) -> tuple[float, float, float] | None:
    """A share as (value, low, high) for plots."""
    return None if share is None else (share.value, share.low, share.high)


def _value(share: Share | None) -> str:
    return "-" if share is None else f"{share.value:.4f}"
