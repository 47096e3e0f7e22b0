"""The quality gate's report as a page, made from the report and, for int8, from the recipe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enricher.workshop.pages.frame import Badge, bullets, cards, facts, page, section
from enricher.workshop.pages.gate_classes import class_parts
from enricher.workshop.pages.gate_vectors import vector_parts
from enricher.workshop.pages.plots import pairs_plot, plots_missing, ranges_plot
from enricher.workshop.pages.recipe import recipe_sections
from enricher.workshop.pages.rows import POINTS, compositions_table, differences_plot, pairs, ranges, rows_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from enricher.worker.inference.graph.recipe import Recipe
    from enricher.workshop.gate.report import GateReport


def gate_page(report: GateReport, recipe: Recipe | None = None) -> str:
    """A complete, self-contained HTML document. `recipe` is what a quantised variant was made with."""
    bound = report.bound_to
    title = f"{bound.model_name}: {bound.variant} against fp32"
    subtitle = f"{bound.gold_name}, {_texts(report)}; {bound.processor}; {bound.created_at}"
    return page(
        title, subtitle, _parts(report, recipe), Badge("passed" if report.passed else "failed", good=report.passed)
    )


def _parts(report: GateReport, recipe: Recipe | None) -> Iterator[str]:
    yield plots_missing()
    if report.classes is not None:
        yield from class_parts(report, report.classes)
    elif report.vectors is not None:
        yield from vector_parts(report, report.vectors)
    else:
        yield from _entity_parts(report)
    if recipe is not None:
        yield from recipe_sections(recipe)
    bound = "model, variant, builder or recipe" if recipe is not None else "model, variant or builder"
    yield section("Bound to", f"Another {bound} needs its own report.", facts(_facts(report)))


def _entity_parts(report: GateReport) -> Iterator[str]:
    sentences, documents = report.comparisons
    precision = report.bound_to.precision
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
        pairs_plot(
            [*pairs("", sentences.by_length), *pairs("doc ", documents.by_length)], ("fp32", precision), "entities"
        ),
    )
    yield section(
        "Losses, and what may be chance",
        "Bars are 95 % intervals of a paired bootstrap over texts.",
        ranges_plot([*ranges("sentences", sentences), *ranges("documents", documents)], POINTS, report.limit_points),
    )
    yield section(
        "Differences of logits",
        f"Every logit of every token, {precision} against fp32: largest {sentences.logits.largest_difference:.3g} "
        f"({100 * sentences.logits.largest_relative:.2g} % of the largest logit), 99 % below "
        f"{sentences.logits.p99_difference:.3g}. Heights by square root.",
        differences_plot(sentences.logits),
    )
    yield section(
        "The same windows in other batches",
        "What changes against each window alone when windows are batched in other ways.",
        compositions_table(((each, each.changed_labels, each.equal_labels) for each in report.compositions), "labels"),
    )
    for comparison in report.comparisons:
        note = f"{comparison.texts:,} texts, {comparison.tokens:,} tokens, {comparison.windows:,} windows."
        every = (comparison.overall, *comparison.by_type, *comparison.by_length)
        yield section(comparison.name.capitalize(), note, rows_table(every, precision, "entities"))


def _texts(report: GateReport) -> str:
    figures = report.classes or report.vectors
    if figures is None:
        return f"{report.comparisons[0].texts:,} sentences"
    return f"{figures.comparisons[0].texts:,} texts"


def _facts(report: GateReport) -> list[tuple[str, str]]:
    bound = report.bound_to
    return [
        ("model", f"{bound.model_name}, sha256 {bound.model_digest}"),
        ("variant", f"{bound.variant} ({bound.precision}), graph builder {bound.builder_version}"),
        *([("int8 recipe", f"sha256 {bound.recipe_digest}")] if bound.recipe_digest else []),
        *([("arithmetic", bound.arithmetic)] if bound.arithmetic else []),
        ("gold set", f"{bound.gold_name}, sha256 {bound.gold_digest}"),
        ("run by", f"{bound.provider}, ONNX Runtime {bound.onnxruntime}, enricher {bound.enricher}"),
        ("processor", f"{bound.processor} ({', '.join(bound.processor_features)})"),
    ]
