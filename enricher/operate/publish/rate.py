"""Limits the rate of publishing with a token bucket; after a pause, the missed articles are not sent in a burst."""

from __future__ import annotations

import time
from collections.abc import Callable

BURST_S = 0.1
"""The largest burst after a pause: the articles of this much time, at least one."""
UNANSWERED_S = 1.0
"""The broker may still have to acknowledge the articles of this much time: after an outage they arrive all at once."""


class TokenBucket:
    """Allows `rate_per_s` articles per second."""

    def __init__(self, rate_per_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate_per_s = rate_per_s
        self._capacity = max(1.0, rate_per_s * BURST_S)
        self._clock = clock
        self._tokens, self._filled_s = 1.0, clock()

    @property
    def most_unanswered(self) -> float:
        """The number of articles that may be sent but not acknowledged."""
        return max(1.0, self._rate_per_s * UNANSWERED_S)

    def wait_s(self) -> float:
        """Seconds until an article may go; 0 if one may go now."""
        now_s = self._clock()
        self._tokens = min(self._capacity, self._tokens + (now_s - self._filled_s) * self._rate_per_s)
        self._filled_s = now_s
        return max(0.0, (1.0 - self._tokens) / self._rate_per_s)

    def take(self) -> None:
        """Count one article as sent."""
        self._tokens -= 1.0
