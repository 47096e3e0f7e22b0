"""The topic: a FIFO of unprocessed articles."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np


@dataclass(slots=True)
class Topic:
    """Articles by second of arrival. `ages_s` and `counts`: ages and numbers of processed articles."""

    written: int = 0
    done: int = 0
    committed: int = 0
    """Processed before this second; the rest is still in a batch or a transaction."""
    ages_s: list[float] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    _waiting: deque[tuple[int, int]] = field(default_factory=deque)
    _part: float = 0.0

    @property
    def waiting(self) -> int:
        return self.written - self.done

    def age_s(self, now_s: int) -> float:
        return float(now_s - self._waiting[0][0]) if self._waiting else 0.0

    def write(self, count: int, now_s: int) -> None:
        if count:
            self._waiting.append((now_s, count))
            self.written += count

    def process(self, capacity: float, now_s: int, latency_s: float) -> None:
        """Process what the workers can do in this second; a fraction of an article is carried over."""
        self.committed = self.done
        self._part += capacity
        while self._waiting and self._part >= 1:
            came_s, count = self._waiting[0]
            taken = min(count, int(self._part))
            self._part -= taken
            self.done += taken
            self.ages_s.append(now_s - came_s + latency_s)
            self.counts.append(taken)
            if taken == count:
                self._waiting.popleft()
            else:
                self._waiting[0] = came_s, count - taken
        if not self._waiting:
            self._part = 0.0  # unused time is lost

    def age_quantile_s(self, share: float) -> float:
        order = np.argsort(self.ages_s)
        counted = np.cumsum(np.asarray(self.counts)[order])
        return float(np.asarray(self.ages_s)[order][np.searchsorted(counted, share * counted[-1])])

    def share_within(self, age_s: float) -> float:
        counts = np.asarray(self.counts)
        return float(counts[np.asarray(self.ages_s) <= age_s].sum() / counts.sum())
