"""The runs of both variants of a head with rows -> its part of the report, and the verdict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from enricher.worker.inference.checkpoint.gate_figures import ClassFigures, VectorFigures
from enricher.workshop.gate.batches import COMPOSITIONS, USUAL
from enricher.workshop.gate.classes import ClassScale, compare_classes, compose_classes
from enricher.workshop.gate.gold import joined
from enricher.workshop.gate.vectors import compare_vectors, compose_vectors
from enricher.workshop.gate.verdict_rows import judge_classes, judge_vectors

if TYPE_CHECKING:
    from enricher.worker.heads import HeadSpec
    from enricher.worker.inference.checkpoint.gate_figures import Comparison, Composition
    from enricher.worker.inference.run.model import PreparedModel
    from enricher.workshop.gate.gold import GoldSet
    from enricher.workshop.gate.rows import RowsRun
    from enricher.workshop.gate.verdict import GateVerdict


@dataclass(frozen=True, slots=True)
class Findings:
    """The figures of a report about the head, of one kind."""

    verdict: GateVerdict
    comparisons: tuple[Comparison, ...] = ()
    compositions: tuple[Composition, ...] = ()
    classes: ClassFigures | None = None
    vectors: VectorFigures | None = None


@dataclass(frozen=True, slots=True, eq=False)
class MeasuredRows:
    """The answers of one variant, in rows: a run for each of COMPOSITIONS, and one on documents."""

    model: PreparedModel
    runs: tuple[RowsRun, ...]
    documents: RowsRun


def row_findings(
    head: HeadSpec, gold: GoldSet, reference: MeasuredRows, reduced: MeasuredRows, limit_points: float
) -> Findings:
    """Compare and judge."""
    variant = reduced.model.variant.name
    if head.kind == "embedding":
        vectors = _vectors(head, reference, reduced)
        return Findings(judge_vectors(vectors, variant), vectors=vectors)
    classes = _classes(ClassScale(head, limit_points), gold, reference, reduced)
    return Findings(judge_classes(classes, variant, limit_points), classes=classes)


def _classes(scale: ClassScale, gold: GoldSet, reference: MeasuredRows, reduced: MeasuredRows) -> ClassFigures:
    usual = reference.runs[USUAL]
    return ClassFigures(
        multi_label=scale.head.multi_label,
        comparisons=(
            compare_classes("texts", scale, gold.texts, usual, reduced.runs[USUAL]),
            compare_classes("documents", scale, joined(gold.texts), reference.documents, reduced.documents),
        ),
        compositions=tuple(
            compose_classes(name, each.model.variant.name, scale, gold.texts, usual, (each.runs[0], run))
            for each in (reference, reduced)
            for (name, _), run in zip(COMPOSITIONS, each.runs, strict=True)
        ),
    )


def _vectors(head: HeadSpec, reference: MeasuredRows, reduced: MeasuredRows) -> VectorFigures:
    return VectorFigures(
        dimensions=head.dimensions,
        comparisons=(
            compare_vectors("texts", reference.runs[USUAL], reduced.runs[USUAL]),
            compare_vectors("documents", reference.documents, reduced.documents),
        ),
        compositions=tuple(
            compose_vectors(name, each.model.variant.name, each.runs[0], run)
            for each in (reference, reduced)
            for (name, _), run in zip(COMPOSITIONS, each.runs, strict=True)
        ),
    )
