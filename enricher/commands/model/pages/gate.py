"""The quality gate's report as a page, made from the report and, for int8, from the recipe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enricher.commands.model.pages.frame import Badge, bullets, cards, facts, key, page, section, table
from enricher.commands.model.pages.plots import Pair, Range, histogram_plot, pairs_plot, ranges_plot
from enricher.commands.model.pages.recipe import recipe_sections

if TYPE_CHECKING:
    from collections.abc import Iterator

    from enricher.inference.checkpoint.gate_report import Comparison, GateReport, Row
    from enricher.inference.quantisation.recipe import Recipe

_FEW_ENTITIES = 20
"""Buckets with fewer are in the tables only; in a plot one entity would look like a large difference."""


def gate_page(report: GateReport, recipe: Recipe | None = None) -> str:
    """A complete, self-contained HTML document. `recipe` is what a quantised variant was made with."""
    bound = report.bound_to
    title = f"{bound.model_name}: {bound.variant} against fp32"
    subtitle = f"{bound.gold_name}, {report.comparisons[0].texts:,} sentences; {bound.processor}; {bound.created_at}"
    return page(
        title, subtitle, _parts(report, recipe), Badge("passed" if report.passed else "failed", good=report.passed)
    )


def _parts(report: GateReport, recipe: Recipe | None) -> Iterator[str]:
    sentences, documents = report.comparisons
    precision = report.bound_to.precision
    colours = key([("base", "fp32"), ("main", precision)])
    overall = sentences.overall
    yield cards(
        [
            (f"{overall.reduced.f1:.4f}", f"entity F1; fp32 {overall.reference.f1:.4f}"),
            (f"{overall.delta_points:+.2f}", "F1 points against fp32"),
            (f"{100 * sentences.equal_labels:.3f} %", f"labels equal; {sentences.changed_labels:,} differ"),
            (f"{sentences.spans.f1:.4f}", "agreement of spans with fp32"),
            (f"{sentences.logits.largest_difference:.3g}", "largest difference of a logit"),
            (f"{sentences.not_finite_reduced:,}", "NaN or infinite numbers"),
        ]
    )
    yield section("Verdict", f"At most {report.limit_points:g} F1 points may be lost.", bullets(report.reasons))
    yield section(
        "F1 by length of text",
        "Exact spans against the gold set; lengths in tokens. Documents are the same sentences, joined.",
        colours,
        pairs_plot([*_pairs("", sentences.by_length), *_pairs("doc ", documents.by_length)], ("base", "main")),
    )
    yield section(
        "Losses, and what may be chance",
        "Bars are 95 % intervals of a paired bootstrap over texts.",
        ranges_plot([*_ranges("sentences", sentences), *_ranges("documents", documents)], report.limit_points),
    )
    yield section(
        "Differences of logits",
        f"Every logit of every token, {precision} against fp32: largest {sentences.logits.largest_difference:.3g} "
        f"({100 * sentences.logits.largest_relative:.2g} % of the largest logit), 99 % below "
        f"{sentences.logits.p99_difference:.3g}. Heights by square root.",
        histogram_plot(
            sentences.logits.histogram,
            sentences.logits.histogram_from,
            sentences.logits.histogram_step,
            "absolute difference",
        ),
    )
    yield section(
        "The same windows in other batches",
        "What changes against each window alone when windows are batched in other ways.",
        _compositions(report),
    )
    for comparison in report.comparisons:
        note = f"{comparison.texts:,} texts, {comparison.tokens:,} tokens, {comparison.windows:,} windows."
        yield section(comparison.name.capitalize(), note, _rows(comparison, precision))
    if recipe is not None:
        yield from recipe_sections(recipe)
    bound = "model, variant, builder or recipe" if recipe is not None else "model, variant or builder"
    yield section("Bound to", f"Another {bound} needs its own report.", facts(_facts(report)))


def _weighty(rows: tuple[Row, ...]) -> list[Row]:
    """The rows with enough entities; all rows if none has."""
    return [row for row in rows if row.reference.expected >= _FEW_ENTITIES] or list(rows)


def _pairs(prefix: str, rows: tuple[Row, ...]) -> list[Pair]:
    return [Pair(prefix + row.name, row.reference.f1, row.reduced.f1, row.reference.expected) for row in _weighty(rows)]


def _ranges(name: str, comparison: Comparison) -> list[Range]:
    rows = [*_weighty(comparison.by_type), *_weighty(comparison.by_length)]
    details = [Range(f"{name} {row.name}", row.delta_points, row.low_points, row.high_points) for row in rows]
    overall = comparison.overall
    return [Range(name, overall.delta_points, overall.low_points, overall.high_points, strong=True), *details]


def _rows(comparison: Comparison, precision: str) -> str:
    columns = ["", "entities", "F1 fp32", f"F1 {precision}", "points", "95 %", "precision", "recall"]
    every = (comparison.overall, *comparison.by_type, *comparison.by_length)
    return table(columns, [_cells(row) for row in every], best=0)


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


def _compositions(report: GateReport) -> str:
    columns = ["variant and batches", "runs", "labels that change", "equal", "largest change of a score", "F1"]
    rows = [
        [
            f"{each.variant}, {each.name}",
            f"{each.runs:,}",
            f"{each.changed_labels:,}",
            f"{100 * each.equal_labels:.3f} %",
            f"{each.largest_score_change:.2g}",
            f"{each.f1:.4f}",
        ]
        for each in report.compositions
    ]
    return table(columns, rows)


def _facts(report: GateReport) -> list[tuple[str, str]]:
    bound = report.bound_to
    return [
        ("model", f"{bound.model_name}, sha256 {bound.model_digest}"),
        ("variant", f"{bound.variant} ({bound.precision}), graph builder {bound.builder_version}"),
        *([("int8 recipe", f"sha256 {bound.recipe_digest}")] if bound.recipe_digest else []),
        ("gold set", f"{bound.gold_name}, sha256 {bound.gold_digest}"),
        ("run by", f"{bound.provider}, ONNX Runtime {bound.onnxruntime}, enricher {bound.enricher}"),
        ("processor", f"{bound.processor} ({', '.join(bound.processor_features)})"),
    ]
