"""Compares two runs of one head: F1 against the gold set, agreement, equal answers. verdict.py judges the figures.

Entities come first, then classes, then vectors. Classes are judged by the labels of people if the gold set has some, else by
the classes that fp32 gives, which measures agreement, not quality. Cosines do not depend on whether vectors are normalised.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from enricher.worker.heads import HeadSpec
from enricher.worker.heads.classification import shares_of
from enricher.worker.records import Float32Array, Int32Array
from enricher.workshop.gate.gold import GoldText
from enricher.workshop.gate.report import (
    Agreement,
    ClassComparison,
    ClassComposition,
    Comparison,
    Composition,
    Row,
    VectorComparison,
    VectorComposition,
)
from enricher.workshop.gate.runs import RowsRun, VariantRun
from enricher.workshop.gate.scoring import (
    CountArray,
    EntitySpan,
    count_by_text,
    delta_interval,
    delta_points,
    labels_of,
    mean_delta_interval,
    total,
)

LENGTH_EDGES_TOKENS = (16, 32, 64, 128, 256, 512, 1024)
"""The longest text of each length bucket, special tokens not counted. One more bucket holds longer texts."""


def compare(
    name: Literal["sentences", "documents"],
    gold: Sequence[GoldText],
    reference: VariantRun,
    reduced: VariantRun,
) -> Comparison:
    """All figures of one set of texts. F1 ignores entities whose labels the gold set does not have."""
    expected = [text.entities for text in gold]
    known = set(labels_of(expected))
    judged = [_known(run, known) for run in (reference, reduced)]

    def counts(label: str | None = None) -> list[CountArray]:
        return [count_by_text(entities, expected, label) for entities in judged]

    every = counts()
    return Comparison(
        name=name,
        texts=len(gold),
        tokens=len(reference.labels),
        windows=reference.windows,
        overall=row_of("all", *every),
        by_type=tuple(row_of(label, *counts(label)) for label in sorted(known)),
        by_length=tuple(
            row_of(name, *(each[texts] for each in every)) for name, texts in length_buckets(reference.lengths_tokens)
        ),
        by_set=tuple(row_of(name, *(each[texts] for each in every)) for name, texts in joined_sets(gold)) or None,
        spans=agreement(count_by_text(reduced.entities, reference.entities)),
        equal_labels=_equal_labels(reference, reduced),
        changed_labels=int((reference.labels != reduced.labels).sum()),
        largest_logit_difference=_largest_difference(reference.logits, reduced.logits),
        not_finite_reference=reference.not_finite,
        not_finite_reduced=reduced.not_finite,
    )


def composition(name: str, variant: str, gold: Sequence[GoldText], alone: VariantRun, other: VariantRun) -> Composition:
    """The changes when the same windows are batched in another way."""
    expected = [text.entities for text in gold]
    counts = count_by_text(_known(other, set(labels_of(expected))), expected)
    return Composition(
        name=name,
        variant=variant,
        runs=other.runs,
        changed_labels=int((alone.labels != other.labels).sum()),
        equal_labels=_equal_labels(alone, other),
        largest_score_change=largest(np.abs(alone.scores - other.scores)),
        f1=total(counts).f1,
    )


def row_of(name: str, reference: CountArray, reduced: CountArray) -> Row:
    """The figures of some texts, from the counts of both variants against the same gold entities."""
    interval = delta_interval(reference, reduced)
    return Row(
        name=name,
        reference=agreement(reference),
        reduced=agreement(reduced),
        delta_points=delta_points(reference, reduced),
        low_points=interval.low_points,
        high_points=interval.high_points,
    )


def agreement(counts: CountArray) -> Agreement:
    """The agreement over all texts together."""
    return Agreement.model_validate(total(counts))


def _known(run: VariantRun, labels: set[str]) -> list[list[EntitySpan]]:
    """Drop entities with labels that the gold set cannot judge."""
    return [[span for span in spans if span.label in labels] for spans in run.entities]


def _equal_labels(reference: VariantRun, other: VariantRun) -> float:
    return float((reference.labels == other.labels).mean()) if len(reference.labels) else 1.0


def length_buckets(lengths_tokens: Int32Array) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    """Name and members of each bucket that is not empty."""
    index = np.searchsorted(np.array(LENGTH_EDGES_TOKENS), lengths_tokens)
    lower = (1, *(edge + 1 for edge in LENGTH_EDGES_TOKENS))
    names = [f"{low}-{high}" for low, high in zip(lower, LENGTH_EDGES_TOKENS, strict=False)] + [f"{lower[-1]}+"]
    for number, name in enumerate(names):
        if (index == number).any():
            yield name, index == number


def joined_sets(gold: Sequence[GoldText]) -> Iterator[tuple[str, npt.NDArray[np.bool_]]]:
    """Name and members of each set that was joined; nothing for a single one."""
    sources = np.array([text.source for text in gold])
    names = dict.fromkeys(sources.tolist())
    yield from ((name, sources == name) for name in names if len(names) > 1)


def _largest_difference(reference: Float32Array, reduced: Float32Array) -> float:
    """The largest difference between finite logits; logits that are not finite are counted elsewhere."""
    finite = np.isfinite(reference) & np.isfinite(reduced)
    return largest(np.abs(reference[finite].astype(np.float64) - reduced[finite]))


def largest(values: npt.NDArray[np.floating]) -> float:
    """The largest finite value; 0 if there is none."""
    return float(np.max(values, initial=0.0, where=np.isfinite(values)))


ClassesOfTexts = npt.NDArray[np.bool_]
"""`bool [texts, classes]`: which classes a text has."""


@dataclass(frozen=True, slots=True)
class ClassScale:
    """How answers are judged. If several labels may hold, a label holds above a probability of 0.5, a task's default."""

    head: HeadSpec
    limit_points: float

    def classes_of(self, rows: Float32Array) -> ClassesOfTexts:
        """The classes of each text, from its logits."""
        classes: ClassesOfTexts = rows >= 0
        if not self.head.multi_label:
            classes = rows.argmax(axis=1)[:, None] == np.arange(len(self.head.labels))
        return classes

    def scores(self, rows: Float32Array) -> npt.NDArray[np.float64]:
        """Probabilities `[texts, classes]`."""
        return shares_of(rows, multi_label=self.head.multi_label)

    def truth(self, gold: Sequence[GoldText]) -> ClassesOfTexts | None:
        """The classes by the labels of people; None if some text has no label."""
        if not gold or any(each.classes is None for each in gold):
            return None
        return np.array([[label in (each.classes or ()) for label in self.head.labels] for each in gold], np.bool_)

    def judged_classes(self, truth: ClassesOfTexts) -> list[int]:
        """The classes whose mean is the macro-F1: as many as possible, without classes too rare for the limit.

        One text more or less changes the F1 of a class of n texts by at most 1/n, and the mean over k classes by 1/(kn).
        """
        texts = truth.sum(axis=0)
        by_size = np.argsort(-texts, kind="stable").tolist()
        weights = [(number + 1) * int(texts[index]) * self.limit_points for number, index in enumerate(by_size)]
        most = max((number + 1 for number, weight in enumerate(weights) if weight >= 100), default=0)
        return sorted(by_size[:most])


def compare_classes(
    name: Literal["texts", "documents"],
    scale: ClassScale,
    gold: Sequence[GoldText],
    reference: RowsRun,
    reduced: RowsRun,
) -> ClassComparison:
    """All figures of one set of texts."""
    first, second = scale.classes_of(reference.rows), scale.classes_of(reduced.rows)
    of_people = scale.truth(gold)
    truth = first if of_people is None else of_people
    counts = [
        [class_counts(each[:, index], truth[:, index]) for index in range(truth.shape[1])] for each in (first, second)
    ]
    sums: list[CountArray] = [np.sum(each, axis=0) for each in counts]
    counted = scale.judged_classes(truth)
    changed = int((first != second).any(axis=1).sum())
    present = [index for index in range(truth.shape[1]) if truth[:, index].any()]
    labels = scale.head.labels
    rows = {index: row_of(labels[index], *(each[index] for each in counts)) for index in present}
    return ClassComparison(
        name=name,
        truth="fp32" if of_people is None else "gold",
        texts=len(truth),
        windows=reference.windows,
        overall=row_of("micro-F1", *sums) if scale.head.multi_label else _macro(counts, rows, counted or present),
        by_class=tuple(rows.values()),
        by_length=tuple(
            row_of(each, *(counted_[texts] for counted_ in sums))
            for each, texts in length_buckets(reference.lengths_tokens)
        ),
        not_counted=() if scale.head.multi_label else tuple(labels[index] for index in present if index not in counted),
        equal_classes=1 - changed / len(truth),
        changed_classes=changed,
        commonest=float(np.unique(first, axis=0, return_counts=True)[1].max() / len(first)),
        largest_logit_difference=_largest_difference(reference.rows, reduced.rows),
        not_finite_reference=reference.not_finite,
        not_finite_reduced=reduced.not_finite,
    )


def compose_classes(
    name: str,
    variant: str,
    scale: ClassScale,
    gold: Sequence[GoldText],
    reference: RowsRun,
    runs: tuple[RowsRun, RowsRun],
) -> ClassComposition:
    """The changes when the same windows are batched in another way. `runs`: with each window alone, and the other way."""
    alone, other = runs
    compared = compare_classes("texts", scale, gold, reference, other)
    changed = int((scale.classes_of(alone.rows) != scale.classes_of(other.rows)).any(axis=1).sum())
    return ClassComposition(
        name=name,
        variant=variant,
        runs=other.runs,
        changed_classes=changed,
        equal_classes=1 - changed / len(alone.rows),
        largest_score_change=largest(np.abs(scale.scores(alone.rows) - scale.scores(other.rows))),
        f1=compared.overall.reduced.f1,
    )


def class_counts(given: npt.NDArray[np.bool_], truth: npt.NDArray[np.bool_]) -> CountArray:
    """The counts of workshop/gate/scoring.py for one class. Both arrays are `bool [texts]`."""
    return np.stack([given & truth, given, truth], axis=1).astype(np.int64)


def _macro(counts: Sequence[Sequence[CountArray]], rows: dict[int, Row], counted: Sequence[int]) -> Row:
    """The means of the figures over the classes `counted`, with the sums of their counts."""
    mine = [rows[index] for index in counted]
    reference, reduced = (_mean([getattr(each, side) for each in mine]) for side in ("reference", "reduced"))
    interval = mean_delta_interval(*([each[index] for index in counted] for each in counts))
    return Row(
        name="macro-F1",
        reference=reference,
        reduced=reduced,
        delta_points=100 * (reduced.f1 - reference.f1),
        low_points=interval.low_points,
        high_points=interval.high_points,
    )


def _mean(classes: Sequence[Agreement]) -> Agreement:
    return Agreement(
        precision=float(np.mean([each.precision for each in classes])),
        recall=float(np.mean([each.recall for each in classes])),
        f1=float(np.mean([each.f1 for each in classes])),
        right=sum(each.right for each in classes),
        predicted=sum(each.predicted for each in classes),
        expected=sum(each.expected for each in classes),
    )


Float64Array = npt.NDArray[np.float64]

NEAREST = 10
NEIGHBOURS_OF = 1000
"""The number of texts whose neighbours among each other are compared: the first ones of a larger gold set."""
TIE_SHARE = 0.02
"""Neighbours whose cosines to a text differ by less than this share of the spread (the standard deviation of all cosines
between two texts, by fp32) count as equally near.

Measured on the built-in model and its 1,000 texts. Without it, bf16 gives 16 % (mean pooling) and 17 % (CLS) of the texts
another ten, because their tenth and eleventh neighbours are equally near but for rounding; with this share, none gets
another ten. Attention rounded to tenths gives 3 % and 45 % another ten even so, although with mean pooling every cosine is
still above 0.9992.
"""
_CHUNK = 250
"""Rows of the table of cosines that are computed at a time."""


def compare_vectors(name: Literal["texts", "documents"], reference: RowsRun, reduced: RowsRun) -> VectorComparison:
    """All figures of one set of texts."""
    ours, theirs = _units(reference), _units(reduced)
    cosines = (ours * theirs).sum(axis=1)
    strict, with_ties = same_nearest(ours[:NEIGHBOURS_OF], theirs[:NEIGHBOURS_OF])
    typical, spread = _between_texts(ours[:NEIGHBOURS_OF])
    return VectorComparison(
        name=name,
        texts=len(ours),
        windows=reference.windows,
        least_cosine=float(cosines.min()),
        median_cosine=float(np.median(cosines)),
        typical_cosine=typical,
        tie=TIE_SHARE * spread,
        neighbours_of=min(len(ours), NEIGHBOURS_OF) if len(ours) > NEAREST else 0,
        same_ten=with_ties,
        same_ten_strict=strict,
        not_finite_reference=reference.not_finite,
        not_finite_reduced=reduced.not_finite,
    )


def compose_vectors(name: str, variant: str, alone: RowsRun, other: RowsRun) -> VectorComposition:
    """The changes when the same windows are batched in another way."""
    ours, theirs = _units(alone), _units(other)
    return VectorComposition(
        name=name,
        variant=variant,
        runs=other.runs,
        least_cosine=float((ours * theirs).sum(axis=1).min()),
        same_ten=same_nearest(ours[:NEIGHBOURS_OF], theirs[:NEIGHBOURS_OF])[1],
    )


def same_nearest(reference: Float64Array, other: Float64Array) -> tuple[float, float]:
    """Shares of texts with the same set of ten nearest texts: strictly, and ties aside. Arrays are unit vectors.

    Ties aside, a text keeps its ten if, by the cosines of `reference`, each of `other`'s ten is less than a tie farther away
    than the tenth. Both shares are 1 if there are too few texts.
    """
    texts = len(reference)
    if texts <= NEAREST:
        return 1.0, 1.0
    strict = with_ties = 0
    tie = TIE_SHARE * _between_texts(reference)[1]
    for first in range(0, texts, _CHUNK):
        rows = slice(first, min(first + _CHUNK, texts))
        ours, theirs = (_cosines(each, rows) for each in (reference, other))
        tenth = np.partition(ours, -NEAREST, axis=1)[:, -NEAREST]
        chosen = np.argpartition(theirs, -NEAREST, axis=1)[:, -NEAREST:]
        farther = tenth - np.take_along_axis(ours, chosen, axis=1).min(axis=1)
        strict += int((farther <= 0).sum())
        with_ties += int(((farther < tie) | (farther <= 0)).sum())
    return strict / texts, with_ties / texts


def _cosines(units: Float64Array, rows: slice) -> Float64Array:
    """`float64 [rows, texts]`; a text is no neighbour of itself."""
    cosines = units[rows] @ units.T
    cosines[np.arange(len(cosines)), np.arange(rows.start, rows.stop)] = -2.0
    return cosines


def _between_texts(units: Float64Array) -> tuple[float, float]:
    """Median and standard deviation of the cosines between two different texts."""
    if len(units) < 2:
        return 0.0, 0.0
    cosines = (units @ units.T)[np.triu_indices(len(units), 1)]
    return float(np.median(cosines)), float(cosines.std())


def _units(run: RowsRun) -> Float64Array:
    """Vectors of length 1; those of length 0 stay as they are."""
    rows = run.rows.astype(np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths == 0, 1.0, lengths)
