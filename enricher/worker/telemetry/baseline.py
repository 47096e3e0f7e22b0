"""How often each label should be found: shares of a task's labels, which `enricher labels --out` writes to a file.

If a task stops finding a label (say ORG), nothing fails; only that label's share shows it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from enricher.errors import SettingsError
from enricher.worker.stats.counters import MOST_LABELS, OTHER

BASELINE_VERSION = 1
"""The version of the file's format."""


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
    totals = totals_of(counts)
    return {pair: count / totals[pair[0]] for pair, count in counts.items() if totals[pair[0]]}


def totals_of(counts: Mapping[tuple[str, str], float]) -> dict[str, float]:
    """The sum of the counts of each task."""
    totals: dict[str, float] = defaultdict(float)
    for (task, _), count in counts.items():
        totals[task] += count
    return totals


def read_baseline(path: Path) -> dict[tuple[str, str], float]:
    """The shares in the file, by task and label; those of a task add up to 1. Raises SettingsError."""
    try:
        return _shares(orjson.loads(path.read_bytes()))
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise SettingsError(f"{path} is not a baseline of labels: {error}") from error


def _shares(document: Any) -> dict[tuple[str, str], float]:  # noqa: ANN401  any JSON
    if not isinstance(document, dict) or document.get("version") != BASELINE_VERSION:
        raise ValueError(f"it does not have version {BASELINE_VERSION}")
    try:
        pairs = [
            (task, label, share) for task, each in document["tasks"].items() for label, share in each["shares"].items()
        ]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("`tasks` must have `shares` for each task") from error
    for task, label, share in pairs:
        if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
            raise ValueError(f"the share of {label} in {task} is not between 0 and 1")
    return bound_labels({(task, label): share for task, label, share in pairs})
