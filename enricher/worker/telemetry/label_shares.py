"""Numbers by task and label: how many labels are kept, and which share of a task's labels each has."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from enricher.worker.stats.counters import MOST_LABELS, OTHER


def bound_labels(numbers: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """The numbers with at most `MOST_LABELS` labels per task; `other` has the sum of the rest.

    The first labels are kept, so that no number of a counter decreases: its keys are in order of appearance.
    """
    kept: dict[tuple[str, str], float] = {}
    labels: Counter[str] = Counter()
    for (task, label), number in numbers.items():
        pair = task, label
        if label != OTHER:
            labels[task] += 1
            pair = pair if labels[task] <= MOST_LABELS else (task, OTHER)
        kept[pair] = kept.get(pair, 0) + number
    return kept


def shares_of(counts: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """Each count divided by the sum of its task's counts; tasks without labels are left out."""
    totals: dict[str, float] = defaultdict(float)
    for (task, _), count in counts.items():
        totals[task] += count
    return {pair: count / totals[pair[0]] for pair, count in counts.items() if totals[pair[0]]}
