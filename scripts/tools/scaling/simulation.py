"""The simulation loop, in steps of one second: arrivals, processing, KEDA and the autoscaler."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from random import Random

import numpy as np
import numpy.typing as npt

from tools.scaling.autoscaler import POLL_S, SYNC_S, Autoscaler
from tools.scaling.day import HOUR_S, Counts
from tools.scaling.metrics import Look, Metric
from tools.scaling.pods import Fleet
from tools.scaling.queue import Topic

_LATENCY_S = 0.5
"""Time from reading an article to its commit at low load; in flight it counts as unprocessed."""
_BUSY_OVER_S = 120
"""The range of the query's rate."""
Series = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Cluster:
    """Parameters that are the same for all metrics."""

    partitions: int
    most: int
    per_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """One day under one metric. Each series has a value per second."""

    name: str
    short: str
    topic: Topic
    replicas: Series
    working: Series
    capacity: Series
    age_s: Series

    @property
    def replica_hours(self) -> float:
        """Paid replica-hours, including workers that are starting."""
        return float(self.replicas.sum()) / HOUR_S

    @property
    def changes(self) -> int:
        return int(np.count_nonzero(np.diff(self.replicas)))

    def as_json(self, target_age_s: float) -> dict[str, float | int | str]:
        quantiles = {name: self.topic.age_quantile_s(share) for name, share in _QUANTILES.items()}
        return {
            "metric": self.name,
            "replica_hours": round(self.replica_hours, 2),
            "most_replicas": int(self.replicas.max()),
            "hours_at_zero": round(float((self.replicas == 0).sum()) / HOUR_S, 2),
            "changes": self.changes,
            **{f"age_{name}_s": value for name, value in quantiles.items()},
            "share_within_target": round(self.topic.share_within(target_age_s), 5),
            "unprocessed_at_the_end": self.topic.waiting,
        }


_QUANTILES = {"p50": 0.5, "p99": 0.99, "p999": 0.999, "max": 1.0}


def simulate(metric: Metric, counts: Counts, cluster: Cluster, seed: int) -> Outcome:
    """Simulate a day. The same seed gives the n-th worker the same start time for every metric."""
    fleet = Fleet(cluster.partitions, cluster.per_s, Random(seed))  # noqa: S311  the same luck every time is the point
    topic, scaler = Topic(), Autoscaler(cluster.most)
    recorded = np.zeros((4, len(counts)))
    done = deque([0], maxlen=_BUSY_OVER_S + 1)
    for now_s, count in enumerate(counts.tolist()):
        topic.write(count, now_s)
        capacity = fleet.capacity(now_s)
        topic.process(capacity, now_s, _LATENCY_S)
        done.append(topic.done)
        if now_s % SYNC_S == 0:
            busy = (done[-1] - done[0]) / _BUSY_OVER_S / cluster.per_s
            _turn(metric, _look(topic, fleet, now_s, busy), fleet, scaler)
        recorded[:, now_s] = fleet.replicas, fleet.working, capacity, topic.age_s(now_s)
    return Outcome(metric.name, metric.short, topic, *recorded)


def _turn(metric: Metric, look: Look, fleet: Fleet, scaler: Autoscaler) -> None:
    value, active = metric.ask(look)
    replicas = scaler.sync(fleet.replicas, value, metric.target, look.now_s)
    if look.now_s % POLL_S == 0:
        replicas = scaler.poll(replicas, look.now_s, active=active)
    fleet.scale(replicas, look.now_s)


def _look(topic: Topic, fleet: Fleet, now_s: int, busy: float) -> Look:
    in_flight = topic.done > topic.committed
    age_s = topic.age_s(now_s) or (_LATENCY_S if in_flight else 0.0)
    return Look(now_s, topic.written, topic.committed, age_s, fleet.working, fleet.partitions, busy)
