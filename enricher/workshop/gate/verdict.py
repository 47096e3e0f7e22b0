"""Figures -> passed or failed, with every reason. The rules for entities are here, the others in verdict_rows.py.

A variant fails if, against fp32 on the same texts:

- its F1 is lower by more than the limit: on the sentences, on the longer documents, or in any composition of batches;
- more labels than chance explains depend on the other windows of their batch;
- a type or a length bucket loses more than the limit beyond chance (the 97.5 % bound of a paired bootstrap is below it);
- a number is NaN or infinite.

It also fails if the gold set cannot tell: fp32 itself does badly on it, or one entity weighs more than the limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from enricher.workshop.gate.report import Comparison, Composition, Row

DEFAULT_LIMIT_POINTS = 0.3
"""F1 points that a reduced precision may lose; a reader of the output would not notice such a loss."""
LEAST_REFERENCE_F1 = 0.3
"""Below this, fp32 itself finds little: the gold set is in another language, or labels other things."""


MOST_LABELS_BY_BATCH = 0.001
"""Share of labels that another composition of batches may change: where two logits are equal but for rounding, a few do.
bf16, and int8 with fixed scales, change none of 22,930 (measured); scales that follow the batch changed 0.4 %."""


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """`reasons` say why it failed; after a pass, what was compared."""

    passed: bool
    reasons: tuple[str, ...]


def judge(
    comparisons: Sequence[Comparison], compositions: Sequence[Composition], variant: str, limit_points: float
) -> GateVerdict:
    """The verdict on `variant`. `compositions` also has those of fp32."""
    failures = [
        *(reason for each in comparisons for reason in _inconclusive(each, limit_points)),
        *(reason for each in comparisons for reason in _losses(each, limit_points)),
        *_composition_losses(comparisons[0].overall, compositions, variant, limit_points),
        *(reason for each in comparisons for reason in _not_finite(each)),
    ]
    if failures:
        return GateVerdict(passed=False, reasons=tuple(failures))
    return GateVerdict(passed=True, reasons=tuple(_in_words(each, limit_points) for each in comparisons))


def _inconclusive(comparison: Comparison, limit_points: float) -> Iterator[str]:
    overall = comparison.overall
    if overall.reference.f1 < LEAST_REFERENCE_F1:
        yield (
            f"{comparison.name}: fp32 itself reaches an F1 of only {overall.reference.f1:.3f}: this gold set does not fit "
            f"the model (language, labels); name one that does with --gold"
        )
    if comparison.name == "sentences" and overall.reference.expected * limit_points < 100:
        yield (
            f"the gold set has {overall.reference.expected} entities, so one of them is more than {limit_points} points: "
            f"at least {100 / limit_points:.0f} are needed"
        )


def _losses(comparison: Comparison, limit_points: float) -> Iterator[str]:
    if comparison.overall.delta_points < -limit_points:
        yield lost(comparison.name, comparison.overall, limit_points)
    for kind, rows in (("type", comparison.by_type), ("length", comparison.by_length)):
        for row in rows:
            if row.high_points < -limit_points:
                yield lost(f"{comparison.name}, {kind} {row.name}", row, limit_points)


def _composition_losses(
    overall: Row, compositions: Sequence[Composition], variant: str, limit_points: float
) -> Iterator[str]:
    for each in compositions:
        delta_points = 100 * (each.f1 - overall.reference.f1)
        if each.variant == variant and delta_points < -limit_points:
            yield f"batches {each.name}: F1 {delta_points:+.2f} points, and {limit_points} may be lost"
        if each.variant == variant and each.equal_labels < 1 - MOST_LABELS_BY_BATCH:
            yield (
                f"batches {each.name}: {each.changed_labels:,} labels ({100 * (1 - each.equal_labels):.2f} %) depend on the "
                f"other windows of their batch, and {100 * MOST_LABELS_BY_BATCH:.1f} % may"
            )


def _not_finite(comparison: Comparison) -> Iterator[str]:
    for variant, count in (("fp32", comparison.not_finite_reference), ("the variant", comparison.not_finite_reduced)):
        if count:
            yield f"{comparison.name}: {count} logits or scores of {variant} are NaN or infinite"


def lost(where: str, row: Row, limit_points: float) -> str:
    """The reason that tells a loss of F1."""
    return f"{where}: F1 {row.delta_points:+.2f} points, and {limit_points} may be lost"


def _in_words(comparison: Comparison, limit_points: float) -> str:
    overall = comparison.overall
    return (
        f"{comparison.texts} {comparison.name}: F1 {overall.reduced.f1:.4f}, {overall.delta_points:+.2f} points against "
        f"fp32 (limit -{limit_points}), {100 * comparison.equal_labels:.3f} % of labels equal"
    )
