"""The least probability of a finding: one for all labels of a task, or one for each."""

from __future__ import annotations

from collections.abc import Mapping

Threshold = float | Mapping[str, float] | None
"""The setting: None is the kind's default, and so is a label that is not named."""


def least_of(threshold: Threshold, label: str, default: float) -> float:
    """The least probability with which `label` is found."""
    if threshold is None:
        return default
    return threshold.get(label, default) if isinstance(threshold, Mapping) else threshold
