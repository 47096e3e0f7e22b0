"""How good a head is on texts that it was not trained on: cross-validation by document, and what chance may do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

FOLDS = 5
_RESAMPLES = 2_000
_SEED = 19


@dataclass(frozen=True, slots=True)
class Quality:
    """Macro-F1 with its 95 % interval (bootstrap over documents), and that of always answering the commonest class."""

    macro_f1: float
    low: float
    high: float
    accuracy: float
    majority_f1: float
    by_class: Sequence[float]
    texts: int
    documents: int


def folds(documents: Sequence[str], count: int = FOLDS) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """The fold of each text; texts of one document are in the same one. Shuffled with a fixed seed."""
    names = sorted(set(documents))
    order = np.random.default_rng(_SEED).permutation(len(names))
    fold_of = {name: int(place) % count for name, place in zip(names, order, strict=True)}
    return np.array([fold_of[each] for each in documents])


def quality(known: Sequence[int], found: Sequence[int], documents: Sequence[str], count: int) -> Quality:
    """The quality of `found` classes against the `known` ones."""
    truth, answers = np.asarray(known), np.asarray(found)
    names, owners = np.unique(np.asarray(documents), return_inverse=True)
    pairs = np.zeros((len(names), count, count))
    np.add.at(pairs, (owners, truth, answers), 1)
    random = np.random.default_rng(_SEED)
    drawn = [macro_f1(pairs[random.integers(len(names), size=len(names))].sum(0)) for _ in range(_RESAMPLES)]
    low, high = np.quantile(drawn, (0.025, 0.975))
    total = pairs.sum(0)
    commonest = np.zeros_like(total)
    commonest[:, total.sum(1).argmax()] = total.sum(1)
    return Quality(
        macro_f1(total), float(low), float(high), float(np.trace(total) / total.sum()), macro_f1(commonest),
        f1_by_class(total), len(truth), len(names),
    )  # fmt: skip


def f1_by_class(pairs: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> list[float]:
    """F1 of each class from a table of counts, `[known, found]`; 0 for a class that neither has."""
    both = np.diag(pairs)
    sums = pairs.sum(0) + pairs.sum(1)
    return [float(2 * hit / total) if total else 0.0 for hit, total in zip(both, sums, strict=True)]


def macro_f1(pairs: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> float:
    return float(np.mean(f1_by_class(pairs)))
