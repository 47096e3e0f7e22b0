"""Compares two runs of an embedding head: cosines between both vectors of a text, and its nearest neighbours.

verdict.py judges the figures. Cosines do not depend on whether vectors are normalised.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from enricher.workshop.gate.measure import POWER_STEP, histogram
from enricher.workshop.gate.report import VectorComparison, VectorComposition
from enricher.workshop.gate.runs import RowsRun

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
LOWEST_POWER = -12.0
"""The lowest power of ten in the histogram of `1 - cosine`."""
_CHUNK = 250
"""Rows of the table of cosines that are computed at a time."""


def compare_vectors(name: Literal["texts", "documents"], reference: RowsRun, reduced: RowsRun) -> VectorComparison:
    """All figures of one set of texts."""
    ours, theirs = _units(reference), _units(reduced)
    cosines = (ours * theirs).sum(axis=1)
    strict, with_ties = same_nearest(ours[:NEIGHBOURS_OF], theirs[:NEIGHBOURS_OF])
    typical, spread = _between_texts(ours[:NEIGHBOURS_OF])
    p01, median = np.quantile(cosines, [0.01, 0.5]).tolist()
    return VectorComparison(
        name=name,
        texts=len(ours),
        windows=reference.windows,
        least_cosine=float(cosines.min()),
        p01_cosine=p01,
        median_cosine=median,
        histogram_from=LOWEST_POWER,
        histogram_step=POWER_STEP,
        histogram=histogram(1 - cosines, LOWEST_POWER, 0.5),
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
