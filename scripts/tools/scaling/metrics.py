"""The metrics: that of `enricher scaler`, by its own modules; those of KEDA's own triggers; and the bare age."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Protocol

from enricher.operate.scaling.backlog import Backlog, PartitionBacklog
from enricher.operate.scaling.policy import Rules, is_active, wanted_workers
from enricher.operate.scaling.rates import Rates


@dataclass(frozen=True, slots=True)
class Look:
    """The facts that every metric can see."""

    now_s: float
    written: int
    done: int
    age_s: float
    workers: int
    partitions: int
    busy: float
    """Workers that were busy, on average over the last two minutes."""


class Metric(Protocol):
    """The interface that KEDA and the autoscaler query."""

    name: str
    short: str
    target: float

    def ask(self, look: Look) -> tuple[float, bool]:
        """The metric's value, and whether at least one worker is needed."""
        ...


@dataclass(slots=True)
class ByAge:
    """`enricher scaler`."""

    rules: Rules
    target: float = 1.0
    name: str = field(init=False)
    short: str = field(init=False)
    _rates: Rates = field(default_factory=Rates)

    def __post_init__(self) -> None:
        self.short = f"{self.rules.target_age_s:g} s"
        self.name = f"age, target {self.short}"

    def ask(self, look: Look) -> tuple[float, bool]:
        """The real policy on the real speeds."""
        load = self._rates.note(_backlog(look), look.now_s)
        return float(wanted_workers(load, self.rules)), is_active(load)


@dataclass(slots=True)
class ByLag:
    """KEDA's Kafka scaler: the lag, never above the threshold for each partition (kafka_scaler.go, getTotalLag)."""

    target: float
    name: str = field(init=False)
    short: str = field(init=False)

    def __post_init__(self) -> None:
        self.short = f"{self.target:g}"
        self.name = f"lag, threshold {self.short}"

    def ask(self, look: Look) -> tuple[float, bool]:
        """The lag, which the autoscaler divides by the threshold; active above a lag of 0."""
        lag = look.written - look.done
        return min(float(lag), look.partitions * self.target), lag > 0


@dataclass(slots=True)
class ByBareAge:
    """The age itself as a metric of type Value: `ceil(ready workers * age / target)`, as the autoscaler computes it."""

    target_age_s: float
    target: float = 1.0
    name: str = field(init=False)
    short: str = field(init=False)

    def __post_init__(self) -> None:
        self.short = f"{self.target_age_s:g} s"
        self.name = f"bare age, target {self.short}"

    def ask(self, look: Look) -> tuple[float, bool]:
        """The value that gives the same result as a metric of type AverageValue."""
        return look.workers * look.age_s / self.target_age_s, look.written > look.done


_UTILISATION = 0.8


@dataclass(slots=True)
class ByQuery:
    """The Prometheus query of the documentation, and, if it has a threshold, the lag beside it: the larger number counts.

    The lag also wakes the first worker: without workers the query has no value.
    """

    target_age_s: float
    lag_threshold: float = math.inf
    target: float = 1.0
    name: str = field(init=False)
    short: str = field(init=False)

    def __post_init__(self) -> None:
        lag = "" if math.isinf(self.lag_threshold) else f", lag {self.lag_threshold:g}"
        self.short = f"{self.target_age_s:g} s{lag}"
        self.name = f"query, target {self.short}"

    def ask(self, look: Look) -> tuple[float, bool]:
        """The workers that the larger of both metrics wants."""
        lag = look.written - look.done
        late = min(2.0, max(1.0, look.age_s / self.target_age_s))
        busy = look.busy / _UTILISATION * late if look.workers else 0.0
        query = math.ceil(look.partitions / max(1, math.floor(look.partitions / busy))) if busy else 0
        return max(query, min(look.partitions, lag / self.lag_threshold)), lag > 0 or query > 0


def _backlog(look: Look) -> Backlog:
    """The backlog, spread evenly over all partitions; the first ones take the remainder."""
    partitions = []
    for number in range(look.partitions):
        start, end = (math.ceil((offset - number) / look.partitions) for offset in (look.done, look.written))
        age_s = look.age_s if end > start else 0.0
        partitions.append(PartitionBacklog("simulated", number, start, 0, start, end, end - start, age_s))
    return Backlog("simulated", "simulated", partitions, look.workers)
