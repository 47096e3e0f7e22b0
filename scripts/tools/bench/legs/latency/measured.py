"""What is known of one measuring point, and of its repetitions together. Plain data and arithmetic."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

from tools.bench.arrivals import p99, percentile
from tools.bench.legs.latency.stages import StageTimes
from tools.bench.load import Mix
from tools.bench.repeating import Spread

NAIVE = "naive loop"


@dataclass(frozen=True, slots=True)
class Point:
    """What is measured. `load`: share of the capacity, 0 to 1. `who`: a policy of the worker, or `NAIVE`."""

    mix: Mix
    load: float
    who: str

    def __str__(self) -> str:
        return f"{self.mix} at {self.load:.0%}, {self.who}"


@dataclass(frozen=True, slots=True)
class Batching:
    """What the scheduler made of the articles."""

    batches: int
    real_tokens: int
    padded_tokens: int
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
    client_cores: float
    others_cores: float
    publisher_late_p99_ms: float
    batching: Batching | None = None
    """It is None for the naive loop."""
    stages: StageTimes | None = None
    """Only if the repetition was traced."""


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
        """Median of all articles."""
        return percentile(self.latencies_ms, 0.5)

    @property
    def p90_ms(self) -> float:
        """90th percentile of all articles."""
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

    def spread(self, value: Callable[[Measured], float]) -> Spread:
        """A value's spread over the repetitions."""
        return Spread.of([value(run) for run in self.runs])

    def ratio(self, other: Repeated, value: Callable[[Measured], float]) -> Spread:
        """The same value over the other's, repetition by repetition."""
        return Spread.of([value(run) / value(base) for run, base in zip(self.runs, other.runs, strict=True)])

    def as_dict(self) -> dict[str, Any]:
        """The figures as JSON, without the single latencies."""
        values = {name: self.spread(value).as_dict() for name, value in VALUES.items() if self._has(name)}
        return {
            "mix": self.point.mix,
            "load": self.point.load,
            "who": self.point.who,
            "articles": len(self.latencies_ms),
            "p50_ms": self.p50_ms,
            "p90_ms": self.p90_ms,
            "p99_ms": self.p99_ms,
            "highest_ms": max(self.latencies_ms),
            "p50_ms_by_repetition": [p50_ms(run) for run in self.runs],
            "p50_ms_of_the_last_third": statistics.median(map(late_p50_ms, self.runs)),
            **values,
        }

    def _has(self, name: str) -> bool:
        return name not in _BATCHING or all(run.batching for run in self.runs)


# ---- values of one repetition


def p50_ms(run: Measured) -> float:
    """Median latency."""
    return percentile(run.latencies_ms, 0.5)


def late_p50_ms(run: Measured) -> float:
    """p50 of the last third of the articles: far above the overall p50 if the worker keeps falling behind."""
    return percentile(run.latencies_ms[-max(1, len(run.latencies_ms) // 3) :], 0.5)


def worker_ms(run: Measured) -> float:
    """Processor time of the worker per article."""
    return 1000 * run.worker_cpu_s / run.articles


def broker_ms(run: Measured) -> float:
    """Processor time of the broker per article, what it does for publisher and reader included."""
    return 1000 * run.broker_cpu_s / run.articles


def transactions_per_s(run: Measured) -> float:
    """Transactions of the worker per second."""
    return run.transactions / run.seconds


def articles_per_transaction(run: Measured) -> float:
    """Mean size of a transaction."""
    return run.articles / max(1.0, run.transactions)


def padding(run: Measured) -> float:
    """Computed tokens per real token."""
    assert run.batching
    return run.batching.padded_tokens / run.batching.real_tokens


def batch_tokens(run: Measured) -> float:
    """Mean computed tokens of a batch."""
    assert run.batching
    return run.batching.padded_tokens / run.batching.batches


def run_ms(run: Measured) -> float:
    """Median duration of a run of the model."""
    assert run.batching
    return run.batching.run_ms


_BATCHING: dict[str, Callable[[Measured], float]] = {
    "padded_per_real_token": padding,
    "tokens_per_batch": batch_tokens,
    "run_ms": run_ms,
}
VALUES: dict[str, Callable[[Measured], float]] = {
    "articles_per_s": lambda run: run.articles / run.seconds,
    "visible_per_s": lambda run: run.visible_per_s,
    "transactions_per_s": transactions_per_s,
    "articles_per_transaction": articles_per_transaction,
    "worker_ms_per_article": worker_ms,
    "broker_ms_per_article": broker_ms,
    "client_cores": lambda run: run.client_cores,
    "others_cores": lambda run: run.others_cores,
    "publisher_late_p99_ms": lambda run: run.publisher_late_p99_ms,
    **_BATCHING,
}
"""What is reported of every point, with its unit in its name."""
