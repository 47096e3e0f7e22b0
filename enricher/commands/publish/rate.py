"""How fast to publish: a token bucket. What a pause left out is not caught up with, so the rate is a limit."""

from __future__ import annotations

import time
from collections.abc import Callable

BURST_S = 0.1
"""What may be sent at once after a pause: the articles of so much time, and one at least."""
UNANSWERED_S = 1.0
"""Articles of so much time may be without an answer of the broker: after an outage they arrive all at once."""


class TokenBucket:
    """Says when the next article may go, at `rate_per_s`."""

    def __init__(self, rate_per_s: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate_per_s = rate_per_s
        self._capacity = max(1.0, rate_per_s * BURST_S)
        self._clock = clock
        self._tokens, self._filled_s = 1.0, clock()

    @property
    def most_unanswered(self) -> float:
        """How many articles may be on their way."""
        return max(1.0, self._rate_per_s * UNANSWERED_S)

    def wait_s(self) -> float:
        """Seconds until an article may go; 0 where one may."""
        now_s = self._clock()
        self._tokens = min(self._capacity, self._tokens + (now_s - self._filled_s) * self._rate_per_s)
        self._filled_s = now_s
        return max(0.0, (1.0 - self._tokens) / self._rate_per_s)

    def take(self) -> None:
        """One goes."""
        self._tokens -= 1.0
