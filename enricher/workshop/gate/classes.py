"""Compares two runs of a classification head: F1 by class, equal classes, logits. verdict.py judges the figures.

Texts are judged by the labels of people if the gold set has some, else by the classes that fp32 gives them, which measures
agreement, not quality.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from enricher.worker.heads import HeadSpec
from enricher.worker.heads.classification import shares_of
from enricher.worker.records import Float32Array
from enricher.workshop.gate.gold import GoldText
from enricher.workshop.gate.measure import largest, length_buckets, logit_differences, row_of
from enricher.workshop.gate.report import Agreement, ClassComparison, ClassComposition, Row
from enricher.workshop.gate.runs import RowsRun
from enricher.workshop.gate.scoring import CountArray, mean_delta_interval

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
        logits=logit_differences(reference.rows, reduced.rows),
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
