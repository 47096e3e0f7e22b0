"""Figures -> passed or failed, with every reason: one function for each kind of head that the gate compares.

A variant is compared with fp32 on the same texts. It fails on entities if

- its F1 is lower by more than the limit: on the sentences, on the longer documents, or in any composition of batches; on
  the first two also in any of several sets, such as one per language;
- more labels than chance explains depend on the other windows of their batch;
- a type or a length bucket loses more than the limit beyond chance (the 97.5 % bound of a paired bootstrap is below it).

It fails on classes if

- macro-F1 (micro-F1 if several labels may hold) is lower by more than the limit, in any composition of batches;
- a class, a bucket of lengths or the longer documents lose more than the limit beyond chance;
- fewer than 99.5 % of the texts get the same classes, where people have labelled none of them;
- more classes than chance explains depend on the other windows of their batch.

It fails on vectors if a text's two vectors have a cosine below 0.999, if fewer than 99 % of 1,000 texts have the same ten
nearest (measure.py says what a tie is), or if a vector depends on the other windows of its batch.

It also fails if a number is NaN or infinite, and if these texts cannot show a loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from enricher.workshop.gate.measure import NEIGHBOURS_OF
from enricher.workshop.gate.report import (
    ClassComparison,
    ClassComposition,
    ClassFigures,
    Comparison,
    Composition,
    Row,
    VectorComparison,
    VectorFigures,
)

DEFAULT_LIMIT_POINTS = 0.3
"""F1 points that a reduced precision may lose; a reader of the output would not notice such a loss."""
LEAST_REFERENCE_F1 = 0.3
"""Below this, fp32 itself finds little: the gold set is in another language, or labels other things."""
MOST_LABELS_BY_BATCH = 0.001
"""The share of labels that another composition of batches may change: a few do where two logits are equal except for
rounding. bf16, and int8 with fixed scales, change none of 22,930 (measured); scales that follow the batch changed 0.4 %."""
LEAST_EQUAL_CLASSES = 0.995
"""The least share of texts with the same classes as fp32, if nobody has labelled the texts."""
MAX_SHARE_CHANGED_BY_BATCHING = 0.001
"""The share of texts whose classes another composition of batches may change; one text always may. bf16 changes none."""
LEAST_COSINE = 0.999
LEAST_SAME_TEN = 0.99
"""The least share of texts with the same ten nearest. bf16 reaches 1.000 (measure.py)."""
LEAST_COSINE_BY_BATCH = 0.99999
"""The least cosine between vectors of a variant in two compositions of batches. fp32 and bf16 differ by under 0.0000005."""
MOST_TYPICAL_COSINE = 0.999
"""If the vectors of two texts are usually this similar, LEAST_COSINE shows nothing."""


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """The verdict on a variant. `reasons`: why it failed; or if it passed, what was compared."""

    passed: bool
    reasons: tuple[str, ...]

    @classmethod
    def of(cls, failures: Sequence[str], compared: Iterable[str]) -> GateVerdict:
        """The verdict, which is failed if there are failures."""
        return cls(passed=not failures, reasons=tuple(failures or compared))


def judge_entities(
    comparisons: Sequence[Comparison], compositions: Sequence[Composition], variant: str, limit_points: float
) -> GateVerdict:
    """The verdict on a head that finds entities in `variant`. `compositions` also has those of fp32."""
    overall = comparisons[0].overall
    failures = [
        *(reason for each in comparisons for reason in _too_weak_for_entities(each, limit_points)),
        *(reason for each in comparisons for reason in _entity_losses(each, limit_points)),
        *(
            reason
            for each in compositions
            if each.variant == variant
            for reason in _entity_losses_by_batch(each, overall, limit_points)
        ),
        *(reason for each in comparisons for reason in _not_finite(each, "logits or scores")),
    ]
    return GateVerdict.of(failures, (_compared_entities(each, limit_points) for each in comparisons))


def judge_classes(figures: ClassFigures, variant: str, limit_points: float) -> GateVerdict:
    """The verdict on a classification head in `variant`."""
    texts = figures.comparisons[0]
    failures = [
        *_too_weak_for_classes(texts, multi_label=figures.multi_label, limit_points=limit_points),
        *_class_losses(texts, limit_points),
        *(reason for each in figures.comparisons for reason in _class_losses_beyond_chance(each, limit_points)),
        *(
            reason
            for each in figures.compositions
            if each.variant == variant
            for reason in _class_losses_by_batch(each, texts, limit_points)
        ),
        *(reason for each in figures.comparisons for reason in _not_finite(each, "numbers")),
    ]
    return GateVerdict.of(failures, (_compared_classes(each, limit_points) for each in figures.comparisons))


def judge_vectors(figures: VectorFigures, variant: str) -> GateVerdict:
    """The verdict on an embedding head in `variant`."""
    failures = [
        *_too_weak_for_vectors(figures.comparisons[0]),
        *(reason for each in figures.comparisons for reason in _vector_changes(each)),
        *(
            f"batches {each.name}: the cosine between a text's vectors is as low as {each.least_cosine:.6f}, and at least "
            f"{LEAST_COSINE_BY_BATCH} is needed: they depend on the other windows of their batch"
            for each in figures.compositions
            if each.variant == variant and each.least_cosine < LEAST_COSINE_BY_BATCH
        ),
        *(reason for each in figures.comparisons for reason in _not_finite(each, "numbers")),
    ]
    return GateVerdict.of(failures, map(_compared_vectors, figures.comparisons))


# ---- entities


def _too_weak_for_entities(comparison: Comparison, limit_points: float) -> Iterator[str]:
    """Why the texts cannot show a loss."""
    rows = list(_judged_alone(comparison))
    for name, row in rows:
        if row.reference.f1 < LEAST_REFERENCE_F1:
            yield (
                f"{name}: fp32 itself reaches an F1 of only {row.reference.f1:.3f}: this gold set does not fit the model "
                f"(language, labels); name one that does with --gold"
            )
    if comparison.name == "documents":  # they have the same entities as the sentences
        return
    for name, row in rows:
        if reason := too_few_entities(row.reference.expected, limit_points):
            yield f"{name}: {reason}"


def too_few_entities(count: int, limit_points: float) -> str | None:
    """Why so many labelled entities cannot show a loss of that many points; None if they can."""
    if count * limit_points >= 100:
        return None
    return (
        f"the gold set has {count} entities, so one of them is more than {limit_points} points: at least "
        f"{math.ceil(100 / limit_points)} are needed"
    )


def _judged_alone(comparison: Comparison) -> Iterator[tuple[str, Row]]:
    """All texts, and each of several sets: a language may not lose what another gains."""
    yield comparison.name, comparison.overall
    yield from ((f"{comparison.name} of {row.name}", row) for row in comparison.by_set or ())


def _entity_losses(comparison: Comparison, limit_points: float) -> Iterator[str]:
    for name, row in _judged_alone(comparison):
        if row.delta_points < -limit_points:
            yield _loss(name, row, limit_points)
    for kind, rows in (("type", comparison.by_type), ("length", comparison.by_length)):
        for row in rows:
            if row.high_points < -limit_points:
                yield _loss(f"{comparison.name}, {kind} {row.name}", row, limit_points)


def _entity_losses_by_batch(composition: Composition, overall: Row, limit_points: float) -> Iterator[str]:
    delta_points = 100 * (composition.f1 - overall.reference.f1)
    if delta_points < -limit_points:
        yield f"batches {composition.name}: F1 {delta_points:+.2f} points, and {limit_points} may be lost"
    if composition.equal_labels < 1 - MOST_LABELS_BY_BATCH:
        yield (
            f"batches {composition.name}: {composition.changed_labels:,} labels "
            f"({100 * (1 - composition.equal_labels):.2f} %) depend on the other windows of their batch, and "
            f"{100 * MOST_LABELS_BY_BATCH:.1f} % may"
        )


def _compared_entities(comparison: Comparison, limit_points: float) -> str:
    overall = comparison.overall
    return (
        f"{comparison.texts} {comparison.name}: F1 {overall.reduced.f1:.4f}, {overall.delta_points:+.2f} points against "
        f"fp32 (limit -{limit_points}), {100 * comparison.equal_labels:.3f} % of labels equal"
    )


# ---- classes


def _too_weak_for_classes(texts: ClassComparison, *, multi_label: bool, limit_points: float) -> Iterator[str]:
    """Why the texts cannot show a loss."""
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


def _class_losses(texts: ClassComparison, limit_points: float) -> Iterator[str]:
    if texts.overall.delta_points < -limit_points:
        yield _loss("texts", texts.overall, limit_points, texts.overall.name)
    if texts.truth == "fp32" and texts.equal_classes < LEAST_EQUAL_CLASSES:
        yield (
            f"{texts.changed_classes} of {texts.texts} texts ({100 * (1 - texts.equal_classes):.2f} %) get other classes "
            f"than from fp32, and {100 * (1 - LEAST_EQUAL_CLASSES):.1f} % may; texts with labels (--gold) would tell quality"
        )


def _class_losses_beyond_chance(comparison: ClassComparison, limit_points: float) -> Iterator[str]:
    overall = comparison.overall
    if comparison.name == "documents" and overall.high_points < -limit_points:
        yield _loss("documents", overall, limit_points, overall.name)
    for kind, rows in (("class", comparison.by_class), ("length", comparison.by_length)):
        for row in rows:
            if row.high_points < -limit_points:
                yield _loss(f"{comparison.name}, {kind} {row.name}", row, limit_points)


def _class_losses_by_batch(composition: ClassComposition, texts: ClassComparison, limit_points: float) -> Iterator[str]:
    delta_points = 100 * (composition.f1 - texts.overall.reference.f1)
    if delta_points < -limit_points:
        yield f"batches {composition.name}: {texts.overall.name} {delta_points:+.2f} points, and {limit_points} may be lost"
    if composition.changed_classes > max(1, MAX_SHARE_CHANGED_BY_BATCHING * texts.texts):
        yield (
            f"batches {composition.name}: the classes of {composition.changed_classes} texts "
            f"({100 * (1 - composition.equal_classes):.2f} %) depend on the other windows of their batch, and "
            f"{100 * MAX_SHARE_CHANGED_BY_BATCHING:.1f} % may"
        )


def _compared_classes(comparison: ClassComparison, limit_points: float) -> str:
    overall = comparison.overall
    against = "by labels of people" if comparison.truth == "gold" else "by what fp32 answers: agreement, not quality"
    return (
        f"{comparison.texts} {comparison.name} ({against}): {overall.name} {overall.reduced.f1:.4f}, "
        f"{overall.delta_points:+.2f} points against fp32 (limit -{limit_points}), {100 * comparison.equal_classes:.2f} % "
        f"get the same classes"
    )


# ---- vectors


def _too_weak_for_vectors(texts: VectorComparison) -> Iterator[str]:
    """Why the texts cannot show a loss."""
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


def _vector_changes(comparison: VectorComparison) -> Iterator[str]:
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


# ---- all kinds


def _loss(where: str, row: Row, limit_points: float, measure: str = "F1") -> str:
    return f"{where}: {measure} {row.delta_points:+.2f} points, and {limit_points} may be lost"


def _not_finite(comparison: Comparison | ClassComparison | VectorComparison, what: str) -> Iterator[str]:
    for variant, count in (("fp32", comparison.not_finite_reference), ("the variant", comparison.not_finite_reduced)):
        if count:
            yield f"{comparison.name}: {count} {what} of {variant} are NaN or infinite"
