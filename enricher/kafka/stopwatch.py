"""How long the steps of a transaction take: one that took long may have sent its request twice."""

from __future__ import annotations

import time


class Stopwatch:
    """Notes the first step that took longer than a retry of the client takes to come.

    `retry_pause_s` is the shortest time after which the client sends a request again (`KafkaConfig`).
    """

    def __init__(self, retry_pause_s: float) -> None:
        self._limit_s = retry_pause_s
        self._last_s = time.monotonic()
        self.slow: str | None = None
        """What to say of that step."""

    def pass_over(self) -> None:
        """What was done since the last step was no request of the producer's."""
        self._last_s = time.monotonic()

    def done(self, step: str) -> None:
        """A step of the transaction ends here."""
        now_s = time.monotonic()
        if now_s - self._last_s > self._limit_s and self.slow is None:
            self.slow = f"{step} took {now_s - self._last_s:.3f} s, so a request may have been sent twice"
        self._last_s = now_s
