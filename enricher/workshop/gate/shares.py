"""Shares, such as precision, with intervals from a bootstrap over texts, not over entities."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from enricher.workshop.gate.scoring import draws_of

if TYPE_CHECKING:
    from enricher.workshop.gate.scoring import CountArray

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


def share(part: PerText, whole: PerText) -> Share | None:
    """The sum of `part` over the sum of `whole`; None if that is 0. The same counts give the same interval."""
    if not whole.sum():
        return None
    sums = draws_of(len(whole)) @ np.stack([part, whole], axis=1)
    with warnings.catch_warnings(), np.errstate(invalid="ignore"):
        warnings.simplefilter("ignore", RuntimeWarning)  # a draw may have none of the few texts that count
        low, high = np.nanquantile(sums[:, 0] / sums[:, 1], [0.025, 0.975]).tolist()
    return Share(float(part.sum() / whole.sum()), low, high)


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
        f1=share(2 * right, predicted + expected),
    )
