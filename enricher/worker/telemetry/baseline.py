"""How often each label should be found: shares of a task's labels, counted once and kept in a file.

If a task stops finding a label (say ORG), nothing fails; only that label's share shows it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from enricher.errors import SettingsError
from enricher.worker.stats.counters import MOST_LABELS, OTHER

FEWEST_LABELS = 1_000
"""The fewest labels of a task whose shares can be compared; with fewer, differences are noise."""
_DRIFT, _RELATIVE_DRIFT = 0.05, 0.5
_GONE, _FEWEST_EXPECTED = 0.1, 100
_VERSION = 1

Shares = Mapping[tuple[str, str], float]
"""The share of each label, by task and label; those of a task add up to 1."""


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


def has_drifted(share: float, baseline: float, total: float) -> bool:
    """Whether a label's share of `total` labels is far from its baseline. The alert EnricherLabelDrift has the same rule.

    Far means that they differ by more than five points and by more than half of the baseline; or that the share is less than
    a tenth of the baseline although at least a hundred such labels were expected.
    """
    if total < FEWEST_LABELS:
        return False
    far = abs(share - baseline) > max(_DRIFT, _RELATIVE_DRIFT * baseline)
    return far or (share < _GONE * baseline and baseline * total >= _FEWEST_EXPECTED)


@dataclass(frozen=True, slots=True)
class LabelBaseline:
    """The labels counted in the newest records of a topic. Times are ISO 8601, UTC."""

    topic: str
    made_at: str
    records: int
    first_at: str | None
    """The time of the oldest of these records; None if records have no timestamps."""
    last_at: str | None
    counts: Mapping[tuple[str, str], int] = field(default_factory=dict)

    def as_json(self) -> bytes:
        """The content of the file: for each task the number of its labels, and their shares, the largest first."""
        ranked = dict(sorted(self.counts.items(), key=lambda each: -each[1]))
        shares, totals = shares_of(bound_labels(ranked)), totals_of(self.counts)
        tasks = {
            name: {
                "labels": total,
                "shares": {
                    label: round(share, 6)
                    for (task, label), share in sorted(shares.items(), key=lambda each: -each[1])
                    if task == name
                },
            }
            for name, total in totals.items()
        }
        document = {
            "version": _VERSION,
            "topic": self.topic,
            "made_at": self.made_at,
            "records": self.records,
            "first_at": self.first_at,
            "last_at": self.last_at,
            "tasks": tasks,
        }
        return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def read_baseline(path: Path) -> dict[tuple[str, str], float]:
    """The shares in a file that `enricher labels --out` wrote. Raises SettingsError."""
    try:
        return _shares(orjson.loads(path.read_bytes()))
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise SettingsError(f"{path} is not a baseline of labels: {error}") from error


def _shares(document: Any) -> dict[tuple[str, str], float]:  # noqa: ANN401  any JSON
    if not isinstance(document, dict) or document.get("version") != _VERSION:
        raise ValueError(f"it does not have version {_VERSION}")
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
