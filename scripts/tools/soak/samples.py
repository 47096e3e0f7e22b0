"""Samples of resident memory, and whether they grow. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

LIMIT = 0.05
"""Largest growth from warm-up to the end; with more, a worker would need restarts before its node does."""
_SPAN = 0.1
"""Start and end are medians over this share of the time, since single samples include temporary buffers."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One sample: seconds since warm-up, resident bytes, articles published so far."""

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
        """From at least ten samples in order of time."""
        assert len(samples) >= 10, "too few samples to speak of growth"
        span = max(1, int(len(samples) * _SPAN))
        sizes = [sample.resident_bytes for sample in samples]
        return cls(statistics.median(sizes[:span]), statistics.median(sizes[-span:]))

    @property
    def share(self) -> float:
        """Growth as a share of the initial size; negative if it shrank."""
        return self.end_bytes / self.start_bytes - 1

    @property
    def flat(self) -> bool:
        return self.share < LIMIT
