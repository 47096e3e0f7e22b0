"""The quality gate's report as a page, for each kind of head; for int8 also its recipe."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enricher.workshop.pages.frame import Badge, bullets, cards, facts, page, section, table
from enricher.workshop.pages.plots import Histogram, histogram_plot, pairs_plot, plots_missing, ranges_plot
from enricher.workshop.pages.recipe_page import recipe_sections
from enricher.workshop.pages.rows import POINTS, compositions_table, differences_plot, pairs, ranges, rows_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from enricher.worker.inference.graph.recipe import Recipe
    from enricher.workshop.gate.report import ClassFigures, GateReport, VectorComparison, VectorFigures

_JUDGED = {
    "gold": "Texts are judged by the labels of people.",
    "fp32": "Nobody has labelled these texts: they are judged by what fp32 answers. That measures agreement, not quality.",
}


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
        yield from _class_parts(report, report.classes)
    elif report.vectors is not None:
        yield from _vector_parts(report, report.vectors)
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
        every = (comparison.overall, *(comparison.by_set or ()), *comparison.by_type, *comparison.by_length)
        yield section(comparison.name.capitalize(), note, rows_table(every, precision, "entities"))


def _class_parts(report: GateReport, figures: ClassFigures) -> Iterator[str]:
    texts, documents = figures.comparisons
    precision, overall = report.bound_to.precision, texts.overall
    judged = _JUDGED[texts.truth]
    yield cards(
        [
            (f"{overall.reduced.f1:.4f}", f"{overall.name}; fp32 {overall.reference.f1:.4f}"),
            (f"{overall.delta_points:+.2f}", "F1 points against fp32"),
            (f"{100 * texts.equal_classes:.2f} %", f"texts with the same classes; {texts.changed_classes:,} differ"),
            (f"{texts.logits.largest_difference:.3g}", "largest difference of a logit"),
            (f"{texts.not_finite_reduced:,}", "NaN or infinite numbers"),
        ]
    )
    limits = f"At most {report.limit_points:g} points of {overall.name} may be lost. {judged}"
    yield section("Verdict", limits, bullets(report.reasons))
    yield section(
        "F1 by class",
        "Below each class, how many texts have it.",
        pairs_plot(pairs("", texts.by_class), ("fp32", precision), "texts"),
    )
    yield section(
        "Losses, and what may be chance",
        "Bars are 95 % intervals of a paired bootstrap over texts. Documents are judged by what fp32 answers.",
        ranges_plot([*ranges("texts", texts), *ranges("documents", documents)], POINTS, report.limit_points),
    )
    yield section(
        "Differences of logits",
        f"Every logit of every text, {precision} against fp32: 99 % below {texts.logits.p99_difference:.3g}. Heights by "
        f"square root.",
        differences_plot(texts.logits),
    )
    yield section(
        "The same windows in other batches",
        "What changes against each window alone when windows are batched in other ways.",
        compositions_table(
            ((each, each.changed_classes, each.equal_classes) for each in figures.compositions), "texts"
        ),
    )
    for each in figures.comparisons:
        note = f"{each.texts:,} texts, {each.windows:,} windows. {_JUDGED[each.truth]}"
        if each.not_counted:
            note += f" Too rare for the {overall.name}: {', '.join(each.not_counted)}."
        every = (each.overall, *each.by_class, *each.by_length)
        yield section(each.name.capitalize(), note, rows_table(every, precision, "answers"))


def _vector_parts(report: GateReport, figures: VectorFigures) -> Iterator[str]:
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
