"""The quality gate's figures as tables for people, for each kind of head."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from rich.markup import escape
from rich.table import Table

from enricher.worker.telemetry.logs import escape_controls
from enricher.workshop.gate.report import GateReport

_COLUMNS = {
    "entities": ("F1 fp32", "F1", "points", "labels equal", "spans", "largest logit"),
    "classes": ("F1 fp32", "F1", "points", "same classes", "judged by", "largest logit"),
    "vectors": ("least cosine", "median", "same ten nearest", "where ties count"),
}


def text_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table of texts that come from outside: labels of models, words of articles."""
    table = Table(*columns)
    for row in rows:
        table.add_row(*(escape(escape_controls(cell)) for cell in row))
    return table


def verdicts_table(reports: Sequence[GateReport]) -> Table:
    """A row for each report and set of texts. All reports are about one model."""
    table = Table("variant", "text", *_COLUMNS[_kind(reports[0])], "verdict")
    for report in reports:
        verdict = "[green]passed[/]" if report.passed else "[bold red]failed[/]"
        for number, (name, *cells) in enumerate(_rows(report)):
            table.add_row(report.bound_to.variant if number == 0 else "", name, *cells, verdict if number == 0 else "")
    return table


def _kind(report: GateReport) -> str:
    if report.classes is not None:
        return "classes"
    return "entities" if report.vectors is None else "vectors"


def _rows(report: GateReport) -> Iterator[tuple[str, ...]]:
    """The name of each set of texts, and the cells of _COLUMNS."""
    for each in report.comparisons:
        yield (
            each.name,
            f"{each.overall.reference.f1:.4f}",
            f"{each.overall.reduced.f1:.4f}",
            f"{each.overall.delta_points:+.2f}",
            f"{100 * each.equal_labels:.3f} %",
            f"{each.spans.f1:.4f}",
            f"{each.logits.largest_difference:.3g}",
        )
    for of_classes in report.classes.comparisons if report.classes else ():
        yield (
            of_classes.name,
            f"{of_classes.overall.reference.f1:.4f}",
            f"{of_classes.overall.reduced.f1:.4f}",
            f"{of_classes.overall.delta_points:+.2f}",
            f"{100 * of_classes.equal_classes:.2f} %",
            "labels" if of_classes.truth == "gold" else "fp32",
            f"{of_classes.logits.largest_difference:.3g}",
        )
    for of_vectors in report.vectors.comparisons if report.vectors else ():
        yield (
            of_vectors.name,
            f"{of_vectors.least_cosine:.6f}",
            f"{of_vectors.median_cosine:.6f}",
            f"{100 * of_vectors.same_ten:.1f} %" if of_vectors.name == "texts" else "-",
            f"{100 * of_vectors.same_ten_strict:.1f} %" if of_vectors.name == "texts" else "-",
        )
