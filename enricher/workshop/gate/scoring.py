"""Compares entities with a gold set, or two predictions with each other, by exact span; shares, with their intervals.

An entity is right if field, start, end and label are all equal: the measure of the CoNLL shared tasks (Tjong Kim Sang and
De Meulder, 2003), on characters instead of words. Counts are kept per text, so that any group of texts is a sum of rows, and
a bootstrap over texts, not over entities, distinguishes a loss from chance.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from enricher.worker.records import Entity, FieldName

CountArray = npt.NDArray[np.int64]
"""`int64 [texts, 3]`: for each text, how many spans are right, predicted and expected."""


@dataclass(frozen=True, slots=True)
class EntitySpan:
    """An entity without text and score; half-open, in Unicode code points of the field."""

    field: FieldName
    start: int
    end: int
    label: str

    @classmethod
    def of(cls, entity: Entity) -> EntitySpan:
        """The span of an entity."""
        return cls(entity["field"], entity["start"], entity["end"], entity["label"])


@dataclass(frozen=True, slots=True)
class Counts:
    """Numbers of right, predicted and expected spans. Shares of zero spans are 1."""

    right: int
    predicted: int
    expected: int

    @property
    def precision(self) -> float:
        """Share of predicted spans that are right."""
        return self.right / self.predicted if self.predicted else 1.0

    @property
    def recall(self) -> float:
        """Share of expected spans that were found."""
        return self.right / self.expected if self.expected else 1.0

    @property
    def f1(self) -> float:
        """Harmonic mean of precision and recall: `2 right / (predicted + expected)`."""
        both = self.predicted + self.expected
        return 2 * self.right / both if both else 1.0


@dataclass(frozen=True, slots=True)
class Interval:
    """A 95 % interval in F1 points (hundredths)."""

    low_points: float
    high_points: float


Spans = Collection[EntitySpan]


def count_by_text(predicted: Sequence[Spans], expected: Sequence[Spans], label: str | None = None) -> CountArray:
    """`int64 [texts, 3]`, for all labels or for one. Both sequences are of the same texts, in the same order."""

    def with_label(spans: Spans) -> set[EntitySpan]:
        return {span for span in spans if label is None or span.label == label}

    pairs = [(with_label(ours), with_label(gold)) for ours, gold in zip(predicted, expected, strict=True)]
    return np.array([(len(ours & gold), len(ours), len(gold)) for ours, gold in pairs], np.int64).reshape(-1, 3)


def total(counts: CountArray) -> Counts:
    """The sum of all rows."""
    right, predicted, expected = counts.sum(axis=0).tolist()
    return Counts(right, predicted, expected)


def delta_points(reference: CountArray, other: CountArray) -> float:
    """F1 of `other` minus F1 of `reference`, in points (hundredths); negative is a loss."""
    return 100 * (total(other).f1 - total(reference).f1)


def delta_interval(reference: CountArray, other: CountArray, *, draws: int = 1000, seed: int = 0) -> Interval:
    """The 95 % interval of `delta_points`, from a paired bootstrap over texts (Koehn, 2004).

    Texts are drawn with replacement, the same ones for both; the same seed gives the same interval.
    """
    return mean_delta_interval([reference], [other], draws=draws, seed=seed)


def mean_delta_interval(
    reference: Sequence[CountArray], other: Sequence[CountArray], *, draws: int = 1000, seed: int = 0
) -> Interval:
    """The same for the mean of several F1 (macro-F1): one array for each class, all of the same texts."""
    texts = len(reference[0]) if reference else 0
    if texts == 0:
        return Interval(0.0, 0.0)
    drawn = draws_of(texts, draws, seed)

    def mean_f1(counts: Sequence[CountArray]) -> npt.NDArray[np.float64]:
        means: npt.NDArray[np.float64] = np.mean([_f1(drawn @ each) for each in counts], axis=0)
        return means

    points = 100 * (mean_f1(other) - mean_f1(reference))
    low, high = np.quantile(points, [0.025, 0.975]).tolist()
    return Interval(low, high)


@lru_cache(maxsize=1)
def draws_of(texts: int, draws: int = 1000, seed: int = 0) -> npt.NDArray[np.float64]:
    """How often each draw has each text: `[draws, texts]`. Cached for the next class of the same texts.

    They are floating-point numbers, because NumPy multiplies matrices of integers without BLAS; the sums are still exact.
    """
    return np.random.default_rng(seed).multinomial(texts, np.full(texts, 1 / texts), size=draws).astype(np.float64)


def labels_of(texts: Iterable[Spans]) -> tuple[str, ...]:
    """All labels that occur, sorted."""
    return tuple(sorted({span.label for spans in texts for span in spans}))


def _f1(sums: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """F1 of each row of `[draws, 3]`, as in `Counts.f1`."""
    both = sums[:, 1] + sums[:, 2]
    return np.where(both == 0, 1.0, 2 * sums[:, 0] / np.maximum(both, 1))


PerText = npt.NDArray[np.int64]
"""`int64 [texts]`: a count for each text."""


@dataclass(frozen=True, slots=True)
class Share:
    """A share from 0 to 1, and its 95 % interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return format(self, ".2f")

    def __format__(self, spec: str) -> str:
        value, low, high = (format(100 * each, spec or ".2f") for each in (self.value, self.low, self.high))
        return f"{value} % ({low} to {high})"


@dataclass(frozen=True, slots=True)
class Score:
    """Counts of some texts against their gold labels. A share is None if its whole is 0."""

    name: str
    right: int
    predicted: int
    expected: int
    precision: Share | None
    recall: Share | None
    f1: Share | None


_Z = 1.96
"""The normal distribution's quantile of 97.5 %."""


def share(part: PerText, whole: PerText, *, counted: int = 1) -> Share | None:
    """The sum of `part` over the sum of `whole`; None if that is 0. The same counts give the same interval.

    The interval is the wider of a bootstrap over texts and Wilson's for so many independent findings: if all of four are
    right, every draw says 100 %, and Wilson 51 to 100 %. `counted`: how often `whole` counts each finding.
    """
    if not whole.sum():
        return None
    sums = draws_of(len(whole)) @ np.stack([part, whole], axis=1)
    with warnings.catch_warnings(), np.errstate(invalid="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)  # a draw may have none of the few texts that count
        low, high = np.nanquantile(sums[:, 0] / sums[:, 1], [0.025, 0.975]).tolist()
    value, findings = float(part.sum() / whole.sum()), float(whole.sum()) / counted
    middle = (value + _Z**2 / (2 * findings)) / (1 + _Z**2 / findings)
    reach = _Z * math.sqrt(value * (1 - value) / findings + (_Z / (2 * findings)) ** 2) / (1 + _Z**2 / findings)
    return Share(value, max(0.0, min(low, middle - reach)), min(1.0, max(high, middle + reach)))


def score(name: str, counts: CountArray) -> Score:
    """Precision, recall and F1 of some texts."""
    right, predicted, expected = counts.T
    return Score(
        name,
        right=int(right.sum()),
        predicted=int(predicted.sum()),
        expected=int(expected.sum()),
        precision=share(right, predicted),
        recall=share(right, expected),
        f1=share(2 * right, predicted + expected, counted=2),
    )
