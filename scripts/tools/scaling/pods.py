"""Workers in a cluster: they take time to start, share the partitions, and each change pauses some partitions."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

_START_S = (60.0, 90.0)
"""Time from the request to the first record: scheduling, container, model, warm-up, joining the group."""
_REBALANCE_S = 2.0
"""Time during which a moved partition is not read (cooperative; measured 1.7 s with a heartbeat of 1 s)."""


@dataclass(slots=True)
class Fleet:
    """The workers. `per_s`: rate of one worker that is never idle."""

    partitions: int
    per_s: float
    random: Random
    _ready_s: list[float] = field(default_factory=list)
    _moved: list[tuple[float, float]] = field(default_factory=list)
    _working: int = 0

    @property
    def replicas(self) -> int:
        """Requested replicas; they cost money whether they work or not."""
        return len(self._ready_s)

    @property
    def working(self) -> int:
        """Members of the consumer group."""
        return self._working

    def scale(self, replicas: int, now_s: float) -> None:
        """Start or stop workers, the newest first, as a StatefulSet does."""
        del self._ready_s[replicas:]
        while len(self._ready_s) < replicas:
            self._ready_s.append(now_s + self.random.uniform(*_START_S))

    def capacity(self, now_s: float) -> float:
        """Articles that the workers can process in the second that starts now."""
        working = sum(ready_s <= now_s for ready_s in self._ready_s)
        if working != self._working:
            moved = abs(working - self._working) / max(working, self._working)
            self._moved.append((now_s + _REBALANCE_S, moved))
            self._working = working
        self._moved = [(until_s, share) for until_s, share in self._moved if until_s > now_s]
        still = max(0.0, 1 - sum(share for _, share in self._moved))
        return self.per_s * still * _sharing(working, self.partitions)


def _sharing(workers: int, partitions: int) -> float:
    """Effective number of workers: partitions are equally full, and each is read by one worker."""
    return partitions / -(-partitions // workers) if workers else 0.0
