"""The results at one measuring point, and those of its repetitions together. Plain data and arithmetic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import reduce
from operator import add
from typing import Any

from tools.bench.legs.latency.stages import StageTimes
from tools.bench.load import Mix
from tools.bench.repeating import Spread, p99, percentile

NAIVE = "naive loop"


@dataclass(frozen=True, slots=True)
class Point:
    """One measuring point. `load`: share of the capacity, 0 to 1. `who`: a policy of the worker, or `NAIVE`."""

    mix: Mix
    load: float
    who: str

    def __str__(self) -> str:
        return f"{self.mix} at {self.load:.0%}, {self.who}"


@dataclass(frozen=True, slots=True)
class Batching:
    """The scheduler's batches of these articles; computed tokens include padding."""

    padded_per_real_token: float
    tokens_per_batch: float
    run_ms: float
    """Median duration of a run of the model."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One repetition. Latency is from when an article was due to when a read_committed consumer had it."""

    latencies_ms: Sequence[float]
    """In order of due time, without the first seconds."""
    articles: int
    """How many were published, those of the first seconds included."""
    seconds: float
    """From the first due time until everything was visible."""
    visible_per_s: float
    """Articles per second that became visible while publishing, without the first third of that time."""
    transactions: float
    worker_cpu_s: float
    broker_cpu_s: float
    """It includes what the broker does for publisher and reader."""
    client_cores: float
    others_cores: float
    publisher_late_p99_ms: float
    batching: Batching | None = None
    """It is None for the naive loop."""
    stages: StageTimes | None = None
    """Only if the repetition was traced."""

    @property
    def values(self) -> dict[str, float]:
        """The values that are reported and compared, each with its unit in its name."""
        latencies_ms = self.latencies_ms
        return {
            "p50_ms": percentile(latencies_ms, 0.5),
            # Far above the p50 of all if the worker keeps falling behind.
            "p50_ms_of_the_last_third": percentile(latencies_ms[-max(1, len(latencies_ms) // 3) :], 0.5),
            "articles_per_s": self.articles / self.seconds,
            "visible_per_s": self.visible_per_s,
            "transactions_per_s": self.transactions / self.seconds,
            "articles_per_transaction": self.articles / max(1.0, self.transactions),
            "worker_ms_per_article": 1000 * self.worker_cpu_s / self.articles,
            "broker_ms_per_article": 1000 * self.broker_cpu_s / self.articles,
            "client_cores": self.client_cores,
            "others_cores": self.others_cores,
            "publisher_late_p99_ms": self.publisher_late_p99_ms,
            **(asdict(self.batching) if self.batching else {}),
        }


@dataclass(frozen=True, slots=True)
class Repeated:
    """All repetitions of one point. Latencies are pooled: p99 needs a hundred articles."""

    point: Point
    runs: Sequence[Measured]

    @property
    def latencies_ms(self) -> list[float]:
        """All repetitions together."""
        return [each for run in self.runs for each in run.latencies_ms]

    @property
    def p50_ms(self) -> float:
        return percentile(self.latencies_ms, 0.5)

    @property
    def p90_ms(self) -> float:
        return percentile(self.latencies_ms, 0.9)

    @property
    def p99_ms(self) -> float | None:
        """99th percentile of all articles; None with fewer than a hundred."""
        return p99(self.latencies_ms)

    @property
    def stages(self) -> StageTimes | None:
        """All traced repetitions together; None without one."""
        traced = [run.stages for run in self.runs if run.stages]
        return reduce(add, traced) if traced else None

    def spread(self, value: str) -> Spread:
        """The spread over the repetitions of one of `Measured.values`."""
        return Spread.of([run.values[value] for run in self.runs])

    def ratio(self, other: Repeated, value: str) -> Spread:
        """The same value over the other's, repetition by repetition."""
        pairs = zip(self.runs, other.runs, strict=True)
        return Spread.of([run.values[value] / base.values[value] for run, base in pairs])

    def as_dict(self) -> dict[str, Any]:
        """The figures as JSON, without the single latencies."""
        values = [run.values for run in self.runs]
        spreads = {name: self.spread(name) for name in values[0] if all(name in each for each in values)}
        return {
            "mix": self.point.mix,
            "load": self.point.load,
            "who": self.point.who,
            "articles": len(self.latencies_ms),
            **spreads,
            "p50_ms": self.p50_ms,
            "p90_ms": self.p90_ms,
            "p99_ms": self.p99_ms,
            "highest_ms": max(self.latencies_ms),
            "p50_ms_by_repetition": [each["p50_ms"] for each in values],
            "p50_ms_of_the_last_third": spreads["p50_ms_of_the_last_third"].median,
        }
