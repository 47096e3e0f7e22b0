"""A histogram with fixed buckets; adding a value costs one bisection."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
"""Upper bounds that OpenTelemetry's messaging conventions recommend for durations."""

WAITS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Upper bounds for waits that are about as long as a batch takes."""

LATENCIES_S = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0)
"""Upper bounds from a fresh article to one that waited for an hour. The service level objective is one of them."""

RATIOS = (0.1, 0.25, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99, 1.0)


@dataclass(slots=True)
class Histogram:
    """Counts per bucket: bucket `i` counts values in `(bounds[i - 1], bounds[i]]`, the last one values above all bounds.

    Written by one thread. Other threads may read it meanwhile; a sum and a count read together may differ by one value.
    """

    bounds: Sequence[float]
    counts: list[int] = field(default_factory=list)
    sum: float = 0.0

    def __post_init__(self) -> None:
        self.counts = self.counts or [0] * (len(self.bounds) + 1)

    def add(self, value: float) -> None:
        """Add one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    @property
    def count(self) -> int:
        """The number of values."""
        return sum(self.counts)

    def quantile(self, share: float) -> float | None:
        """The value that `share` of all values (0 to 1) do not exceed, interpolated within a bucket; None without values."""
        rank = share * self.count
        below, lower = 0, 0.0
        for upper, count in zip(self.bounds, self.counts, strict=False):
            if count and below + count >= rank:
                return lower + (upper - lower) * max(0.0, rank - below) / count
            below, lower = below + count, upper
        return self.bounds[-1] if below < self.count else None
