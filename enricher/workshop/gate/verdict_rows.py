"""The rules for heads that find no entities: figures -> passed or failed, with every reason.

Classes fail if, against fp32 on the same texts:

- macro-F1 (micro-F1 if several labels may hold) is lower by more than the limit, in any composition of batches;
- a class, a bucket of lengths or the longer documents lose more than the limit beyond chance;
- without labels of people, fewer than 99.5 % of the texts get the same classes;
- more classes than chance explains depend on the other windows of their batch.

Vectors fail if a text's two vectors have a cosine below 0.999, if fewer than 99 % of 1,000 texts have the same ten nearest
(vectors.py says what a tie is), or if a vector depends on the other windows of its batch.

Both fail on numbers that are not finite, and if the texts cannot tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from enricher.workshop.gate.vectors import NEIGHBOURS_OF
from enricher.workshop.gate.verdict import LEAST_REFERENCE_F1, GateVerdict, lost

if TYPE_CHECKING:
    from collections.abc import Iterator

    from enricher.workshop.gate.report import (
        ClassComparison,
        ClassComposition,
        ClassFigures,
        Row,
        VectorComparison,
        VectorFigures,
    )

LEAST_EQUAL_CLASSES = 0.995
"""Share of texts with the same classes as fp32, where nothing else says what is right."""
MAX_SHARE_CHANGED_BY_BATCHING = 0.001
"""Share of texts whose classes another composition of batches may change; one text always may. bf16 changes none."""
LEAST_COSINE = 0.999
LEAST_SAME_TEN = 0.99
"""Share of texts with the same ten nearest. bf16 reaches 1.000 (vectors.py)."""
LEAST_COSINE_BY_BATCH = 0.99999
"""The least cosine between vectors of a variant in two compositions of batches. fp32 and bf16 differ by under 0.0000005."""
MOST_TYPICAL_COSINE = 0.999
"""If the vectors of two texts are usually this similar, LEAST_COSINE says nothing."""


def judge_classes(figures: ClassFigures, variant: str, limit_points: float) -> GateVerdict:
    """The verdict on a classification head in `variant`."""
    texts = figures.comparisons[0]
    failures = [
        *_cannot_tell_classes(texts, multi_label=figures.multi_label, limit_points=limit_points),
        *_lost_classes(texts, limit_points),
        *(reason for each in figures.comparisons for reason in _beyond_chance(each, limit_points)),
        *(
            reason
            for each in figures.compositions
            if each.variant == variant
            for reason in _by_batch(each, texts, limit_points)
        ),
        *(reason for each in figures.comparisons for reason in _not_finite(each)),
    ]
    if failures:
        return GateVerdict(passed=False, reasons=tuple(failures))
    return GateVerdict(
        passed=True, reasons=tuple(_compared_classes(each, limit_points) for each in figures.comparisons)
    )


def judge_vectors(figures: VectorFigures, variant: str) -> GateVerdict:
    """The verdict on an embedding head in `variant`."""
    texts = figures.comparisons[0]
    failures = [
        *_cannot_tell_vectors(texts),
        *(reason for each in figures.comparisons for reason in _movement(each)),
        *(
            f"batches {each.name}: the cosine between a text's vectors is as low as {each.least_cosine:.6f}, and at least "
            f"{LEAST_COSINE_BY_BATCH} is needed: they depend on the other windows of their batch"
            for each in figures.compositions
            if each.variant == variant and each.least_cosine < LEAST_COSINE_BY_BATCH
        ),
        *(reason for each in figures.comparisons for reason in _not_finite(each)),
    ]
    if failures:
        return GateVerdict(passed=False, reasons=tuple(failures))
    return GateVerdict(passed=True, reasons=tuple(_compared_vectors(each) for each in figures.comparisons))


def _cannot_tell_classes(texts: ClassComparison, *, multi_label: bool, limit_points: float) -> Iterator[str]:
    reference = texts.overall.reference
    if texts.truth == "gold" and reference.f1 < LEAST_REFERENCE_F1:
        yield (
            f"fp32 itself reaches a {texts.overall.name} of only {reference.f1:.3f}: these texts do not fit the model; name "
            f"others with --gold"
        )
    if texts.truth == "fp32" and texts.commonest > LEAST_EQUAL_CLASSES:
        yield (
            f"fp32 gives {100 * texts.commonest:.1f} % of these texts the same answer, so a variant that always gives it "
            f"would pass: name texts of all classes with --gold"
        )
    too_few = reference.expected * limit_points < 100 if multi_label else len(texts.not_counted) == len(texts.by_class)
    if too_few:
        yield (
            f"{texts.texts} texts are too few: one of them is more than {limit_points} points of {texts.overall.name}; name "
            f"more with --gold"
        )


def _lost_classes(texts: ClassComparison, limit_points: float) -> Iterator[str]:
    if texts.overall.delta_points < -limit_points:
        yield _lost("texts", texts.overall, limit_points)
    if texts.truth == "fp32" and texts.equal_classes < LEAST_EQUAL_CLASSES:
        yield (
            f"{texts.changed_classes} of {texts.texts} texts ({100 * (1 - texts.equal_classes):.2f} %) get other classes "
            f"than from fp32, and {100 * (1 - LEAST_EQUAL_CLASSES):.1f} % may; texts with labels (--gold) would tell quality"
        )


def _beyond_chance(comparison: ClassComparison, limit_points: float) -> Iterator[str]:
    if comparison.name == "documents" and comparison.overall.high_points < -limit_points:
        yield _lost("documents", comparison.overall, limit_points)
    for kind, rows in (("class", comparison.by_class), ("length", comparison.by_length)):
        for row in rows:
            if row.high_points < -limit_points:
                yield lost(f"{comparison.name}, {kind} {row.name}", row, limit_points)


def _lost(where: str, overall: Row, limit_points: float) -> str:
    return f"{where}: {overall.name} {overall.delta_points:+.2f} points, and {limit_points} may be lost"


def _by_batch(composition: ClassComposition, texts: ClassComparison, limit_points: float) -> Iterator[str]:
    delta_points = 100 * (composition.f1 - texts.overall.reference.f1)
    if delta_points < -limit_points:
        yield f"batches {composition.name}: {texts.overall.name} {delta_points:+.2f} points, and {limit_points} may be lost"
    if composition.changed_classes > max(1, MAX_SHARE_CHANGED_BY_BATCHING * texts.texts):
        yield (
            f"batches {composition.name}: the classes of {composition.changed_classes} texts "
            f"({100 * (1 - composition.equal_classes):.2f} %) depend on the other windows of their batch, and "
            f"{100 * MAX_SHARE_CHANGED_BY_BATCHING:.1f} % may"
        )


def _cannot_tell_vectors(texts: VectorComparison) -> Iterator[str]:
    if texts.neighbours_of < NEIGHBOURS_OF:
        yield (
            f"there are {texts.texts} texts, and the nearest of {NEIGHBOURS_OF:,} are compared, because few texts are far "
            f"apart and hard to confuse: name more with --gold"
        )
    if texts.typical_cosine > MOST_TYPICAL_COSINE:
        yield (
            f"two texts usually have a cosine of {texts.typical_cosine:.4f} in fp32 too: this model does not tell these "
            f"texts apart; name others with --gold"
        )


def _movement(comparison: VectorComparison) -> Iterator[str]:
    if comparison.least_cosine < LEAST_COSINE:
        yield (
            f"{comparison.name}: the cosine between a text's vector and that of fp32 is as low as "
            f"{comparison.least_cosine:.5f}, and at least {LEAST_COSINE} is needed"
        )
    if comparison.name == "texts" and comparison.same_ten < LEAST_SAME_TEN:
        yield (
            f"{comparison.name}: {100 * comparison.same_ten:.1f} % of {comparison.neighbours_of:,} have the same ten "
            f"nearest (ties aside), and at least {100 * LEAST_SAME_TEN:.0f} % are needed"
        )


def _not_finite(comparison: ClassComparison | VectorComparison) -> Iterator[str]:
    for variant, count in (("fp32", comparison.not_finite_reference), ("the variant", comparison.not_finite_reduced)):
        if count:
            yield f"{comparison.name}: {count} numbers of {variant} are NaN or infinite"


def _compared_classes(comparison: ClassComparison, limit_points: float) -> str:
    overall = comparison.overall
    against = "by labels of people" if comparison.truth == "gold" else "by what fp32 answers: agreement, not quality"
    return (
        f"{comparison.texts} {comparison.name} ({against}): {overall.name} {overall.reduced.f1:.4f}, "
        f"{overall.delta_points:+.2f} points against fp32 (limit -{limit_points}), {100 * comparison.equal_classes:.2f} % "
        f"get the same classes"
    )


def _compared_vectors(comparison: VectorComparison) -> str:
    nearest = (
        f", {100 * comparison.same_ten:.1f} % of {comparison.neighbours_of:,} have the same ten nearest (ties aside; "
        f"{100 * comparison.same_ten_strict:.1f} % with them)"
        if comparison.name == "texts"
        else ""
    )
    return (
        f"{comparison.texts} {comparison.name}: cosine with fp32 at least {comparison.least_cosine:.6f} (limit "
        f"{LEAST_COSINE}){nearest}"
    )
