"""Which step of a transaction took so long that the client may have sent a request twice."""

from __future__ import annotations

import time


class Stopwatch:
    """Notes the first step that took longer than a retry of the client takes to come."""

    def __init__(self, retry_pause_s: float) -> None:
        self._limit_s = retry_pause_s
        self._last_s = time.monotonic()
        self.slow: str | None = None

    def done(self, step: str) -> None:
        """The step is over, and the next one begins."""
        now_s = time.monotonic()
        if now_s - self._last_s > self._limit_s and self.slow is None:
            self.slow = f"{step} took {now_s - self._last_s:.3f} s, so a request may have been sent twice"
        self._last_s = now_s
