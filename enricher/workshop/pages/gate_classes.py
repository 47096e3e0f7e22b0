"""The quality gate's page about a classification head: its parts between the title and what it is bound to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from enricher.workshop.pages.frame import bullets, cards, section
from enricher.workshop.pages.plots import pairs_plot, ranges_plot
from enricher.workshop.pages.rows import POINTS, compositions_table, differences_plot, pairs, ranges, rows_table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from enricher.workshop.gate.report import ClassFigures, GateReport

_JUDGED = {
    "gold": "Texts are judged by the labels of people.",
    "fp32": "Nobody has labelled these texts: they are judged by what fp32 answers. That measures agreement, not quality.",
}


def class_parts(report: GateReport, figures: ClassFigures) -> Iterator[str]:
    """The sections, as HTML."""
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
