"""The quality gate's page about an embedding head: its parts between the title and what it is bound to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enricher.workshop.pages.frame import bullets, cards, section, table
from enricher.workshop.pages.plots import Histogram, histogram_plot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from enricher.workshop.gate.report import GateReport, VectorComparison, VectorFigures


def vector_parts(report: GateReport, figures: VectorFigures) -> Iterator[str]:
    """The sections, as HTML."""
    texts, documents = figures.comparisons
    precision = report.bound_to.precision
    yield cards(
        [
            (f"{texts.least_cosine:.6f}", "least cosine with fp32"),
            (f"{texts.median_cosine:.6f}", "median cosine with fp32"),
            (f"{100 * texts.same_ten:.1f} %", "texts with the same ten nearest, ties aside"),
            (f"{100 * texts.same_ten_strict:.1f} %", "the same, where ties count"),
            (f"{figures.dimensions:,}", "dimensions"),
            (f"{texts.not_finite_reduced:,}", "NaN or infinite numbers"),
        ]
    )
    yield section(
        "Verdict",
        f"Neighbours whose cosines to a text differ by less than {texts.tie:.4f} in fp32 count as equally near: 2 % of the "
        f"spread of all cosines between two texts.",
        bullets(report.reasons),
    )
    for each, name in ((texts, "texts"), (documents, "documents")):
        yield section(
            f"1 - cosine, {name}",
            f"Between the vectors of {precision} and of fp32 for the same text. Heights by square root.",
            histogram_plot(Histogram(each.histogram, each.histogram_from, each.histogram_step, "1 - cosine")),
        )
    yield section(
        "The same windows in other batches",
        "What changes against each window alone when windows are batched in other ways.",
        _compositions(figures),
    )
    yield section("Texts and documents", "Documents are the same texts, joined.", _comparisons(figures.comparisons))


def _compositions(figures: VectorFigures) -> str:
    rows = [
        [f"{each.variant}, {each.name}", f"{each.runs:,}", f"{each.least_cosine:.7f}", f"{100 * each.same_ten:.1f} %"]
        for each in figures.compositions
    ]
    return table(["variant and batches", "runs", "least cosine", "same ten nearest"], rows)


def _comparisons(comparisons: tuple[VectorComparison, ...]) -> str:
    columns = ["", "number", "windows", "least cosine", "1 % below", "median", "two texts in fp32"]
    rows = [
        [
            each.name,
            f"{each.texts:,}",
            f"{each.windows:,}",
            f"{each.least_cosine:.6f}",
            f"{each.p01_cosine:.6f}",
            f"{each.median_cosine:.6f}",
            f"{each.typical_cosine:.3f}",
        ]
        for each in comparisons
    ]
    return table(columns, rows)
