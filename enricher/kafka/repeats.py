"""Which complaints of a client are worth another line in the log: it repeats each one at every attempt to connect."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable

EVERY_S = 60.0
"""An outage of an hour is 60 lines of each kind; librdkafka alone writes two a second."""
_MOST = 1_000  # texts to remember: a cluster has that many brokers at most, and only numbers make them differ
# What differs between two complaints of one kind: how long it took, how many were suppressed, which of our clients it was,
# and which partitions of a topic a transaction could not have.
_VARIES = re.compile(r" \(after \d+ ?ms.*\)|#(?:producer|consumer)-\d+| \[\d+\](?= to transaction)")


class Repeats:
    """Remembers what was said lately. May be asked from several threads: at worst a line comes twice."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._said_s: dict[str, float] = {}

    def fresh(self, text: str) -> bool:
        """Whether this was not said within the last `EVERY_S`, times and client numbers aside; notes that it is now."""
        bare, now_s = _VARIES.sub("", text), self._clock()
        if now_s - self._said_s.get(bare, -math.inf) < EVERY_S:
            return False
        if len(self._said_s) >= _MOST:
            self._said_s.clear()
        self._said_s[bare] = now_s
        return True
