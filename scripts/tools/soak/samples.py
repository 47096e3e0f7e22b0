"""Resident size over time, and what it says. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

LIMIT = 0.05
"""Growth from warm-up to the end above which a worker would need restarting before its node does."""
_SPAN = 0.1
"""Start and end are medians over this share of the time: single samples carry a batch's or a fetch's buffers."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One look at the worker: seconds since it was warm, resident bytes, articles published until then."""

    at_s: float
    resident_bytes: int
    published: int


@dataclass(frozen=True, slots=True)
class Growth:
    """Resident size just after warm-up and at the end, in bytes."""

    start_bytes: float
    end_bytes: float

    @classmethod
    def of(cls, samples: Sequence[Sample]) -> Growth:
        """From samples in order of time; at least ten."""
        assert len(samples) >= 10, "too few samples to speak of growth"
        span = max(1, int(len(samples) * _SPAN))
        sizes = [sample.resident_bytes for sample in samples]
        return cls(statistics.median(sizes[:span]), statistics.median(sizes[-span:]))

    @property
    def share(self) -> float:
        """Growth as a share of the size at the start; below zero where it shrank."""
        return self.end_bytes / self.start_bytes - 1

    @property
    def flat(self) -> bool:
        """Within the limit."""
        return self.share < LIMIT
