"""Limits the rate of publishing; after a pause, the missed articles are not sent in a burst."""

from __future__ import annotations

import time
from collections.abc import Callable

from enricher.worker.rules.read_limits import RateLimit

MAX_RATE = 1_000_000.0
"""The highest `rate_per_s`: more than there will be, and no infinity."""
BURST_S = 0.1
"""The largest burst after a pause: the articles of this much time, at least one."""
UNANSWERED_S = 1.0
"""The broker may still have to acknowledge the articles of this much time: after an outage they arrive all at once."""


class TokenBucket:
    """Allows `rate_per_s` articles per second."""

    def __init__(self, rate_per_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate_per_s = rate_per_s
        self._clock = clock
        self._limit = RateLimit(rate_per_s, clock(), burst_s=BURST_S)

    @property
    def most_unanswered(self) -> float:
        """The number of articles that may be sent but not acknowledged."""
        return max(1.0, self._rate_per_s * UNANSWERED_S)

    def wait_s(self) -> float:
        """Seconds until an article may go; 0 if one may go now."""
        return self._limit.wait_s(self._clock()) or 0.0

    def take(self) -> None:
        """Count one article as sent."""
        self._limit.taken(1, self._clock())
