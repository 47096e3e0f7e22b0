"""Compares two runs: F1 against the gold set, agreement, equal labels, logits. verdict.py judges the figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from enricher.worker.records import Float32Array, Int32Array
from enricher.workshop.gate.gold import GoldText
from enricher.workshop.gate.report import Agreement, Comparison, Composition, Logits, Row
from enricher.workshop.gate.runs import VariantRun
from enricher.workshop.gate.scoring import (
    CountArray,
    EntitySpan,
    count_by_text,
    delta_interval,
    delta_points,
    labels_of,
    total,
)

LENGTH_EDGES_TOKENS = (16, 32, 64, 128, 256, 512, 1024)
"""The longest text of each length bucket, special tokens not counted. One more bucket holds longer texts."""
LOWEST_POWER, POWER_STEP, HIGHEST_POWER = -8.0, 0.25, 2.0
"""Bins of the histogram of logit differences, as powers of ten: from below float32's precision to unusable values."""


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
        logits=logit_differences(reference.logits, reduced.logits),
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


def logit_differences(reference: Float32Array, reduced: Float32Array) -> Logits:
    """Differences between finite logits; the others are counted elsewhere."""
    finite = np.isfinite(reference) & np.isfinite(reduced)
    differences = np.abs(reference[finite].astype(np.float64) - reduced[finite])
    scale = largest(np.abs(reference[finite]))
    median, p99 = np.quantile(differences, [0.5, 0.99]).tolist() if len(differences) else (0.0, 0.0)
    return Logits(
        largest_difference=largest(differences),
        largest_relative=largest(differences) / scale if scale else 0.0,
        median_difference=median,
        p99_difference=p99,
        histogram_from=LOWEST_POWER,
        histogram_step=POWER_STEP,
        histogram=histogram(differences, LOWEST_POWER, HIGHEST_POWER),
    )


def histogram(values: npt.NDArray[np.float64], lowest_power: float, highest_power: float) -> tuple[int, ...]:
    """How many values are in each bin of POWER_STEP. Values beyond the powers count in the first and the last bin."""
    edges = np.arange(lowest_power, highest_power + POWER_STEP / 2, POWER_STEP)
    powers = np.log10(np.maximum(values, 10**lowest_power))
    return tuple(np.histogram(np.clip(powers, lowest_power, highest_power), edges)[0].tolist())


def largest(values: npt.NDArray[np.floating]) -> float:
    """The largest finite value; 0 if there is none."""
    return float(np.max(values, initial=0.0, where=np.isfinite(values)))
