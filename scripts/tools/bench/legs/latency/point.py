"""One measuring point: the worker under a steady share of its capacity, and the latency of each article."""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from enricher.app.building import kafka_worker
from enricher.runtime.watchdog import Watchdog
from tools.bench.arrivals import p99, percentile, poisson
from tools.bench.bench import PARTITIONS, Bench
from tools.bench.child import Child
from tools.bench.load import Mix, articles
from tools.bench.machine import Load
from tools.bench.open_loop import Job

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enricher.inference.run.engine import OnnxEngine
    from enricher.records import Batch, BatchResult
    from enricher.worker.loop import Worker

SLACK_MS = 20.0
"""Allowance of the aim for everything except deliberate waiting: tokenising, the broker, the commit."""


@dataclass(frozen=True, slots=True)
class Point:
    """What to measure. `load`: share of the capacity, 0 to 1."""

    mix: Mix
    load: float
    max_wait_ms: float
    publish_interval_ms: float


@dataclass(frozen=True, slots=True)
class Measured:
    """The result. Latency is from when an article was due to when a read_committed consumer had it."""

    point: Point
    rate: float
    latencies_ms: list[float]
    """In order of due time."""
    visible_per_s: float
    """Articles per second that became visible while publishing, without the first third of that time."""
    one_batch_ms: float
    """Median duration of a run of the model during this point."""
    transactions: int
    publisher_late_p99_ms: float
    client_cores: float
    load: Load

    @property
    def p50_ms(self) -> float:
        """Median latency."""
        return percentile(self.latencies_ms, 0.5)

    @property
    def p90_ms(self) -> float:
        """90th percentile."""
        return percentile(self.latencies_ms, 0.9)

    @property
    def p99_ms(self) -> float | None:
        """99th percentile; None with fewer than a hundred articles."""
        return p99(self.latencies_ms)

    @property
    def late_p50_ms(self) -> float:
        """p50 of the last third of the articles: far above the overall p50 if the worker keeps falling behind."""
        return percentile(self.latencies_ms[-max(1, len(self.latencies_ms) // 3) :], 0.5)

    @property
    def bound_ms(self) -> float:
        """The aim for p50 at low load: each wait once in full, and some slack."""
        return self.point.max_wait_ms + self.one_batch_ms + self.point.publish_interval_ms + SLACK_MS

    def as_dict(self) -> dict[str, Any]:
        """As JSON, without the single latencies."""
        return {
            **asdict(self.point),
            "articles": len(self.latencies_ms),
            "articles_per_s": self.rate,
            "visible_per_s": self.visible_per_s,
            "p50_ms": self.p50_ms,
            "p90_ms": self.p90_ms,
            "p99_ms": self.p99_ms,
            "late_p50_ms": self.late_p50_ms,
            "highest_ms": max(self.latencies_ms),
            "one_batch_ms": self.one_batch_ms,
            "bound_ms": self.bound_ms,
            "transactions": self.transactions,
            "publisher_late_p99_ms": self.publisher_late_p99_ms,
            "client_cores": self.client_cores,
            "worker_cores": self.load.own_cores - self.client_cores,
            "broker_cores": self.load.broker_cores,
            "others_cores": self.load.others_cores,
        }


class TimedEngine:
    """The model's engine; records how long each run took. Pool threads append to the list, which is thread-safe."""

    def __init__(self, engine: OnnxEngine) -> None:
        self._engine = engine
        self.card, self.labels, self.padded_tokens = engine.card, engine.labels, engine.padded_tokens
        self.open_thread = engine.open_thread
        self.run_s: list[float] = []

    def run(self, batch: Batch) -> BatchResult:
        """Run the batch and record the time."""
        began_s = time.monotonic()
        result = self._engine.run(batch)
        self.run_s.append(time.monotonic() - began_s)
        return result


def measure(bench: Bench, point: Point, capacity_per_s: float, seconds: float, *, seed: int) -> Measured:
    """Run the worker here, and publisher and reader in another process, until every article is visible."""
    due_s = poisson(point.load * capacity_per_s, seconds, seed=seed)
    engine = TimedEngine(bench.model.engine)
    model = replace(bench.model, engine=cast("OnnxEngine", engine))
    with bench.empty_topics() as topics:
        settings = bench.settings_for(
            topics,
            batching={"max_wait_ms": point.max_wait_ms},
            worker={"publish_interval_ms": point.publish_interval_ms},
        )
        with Child("tools.bench.open_loop") as client, ThreadPoolExecutor(1) as pool, Watchdog() as watchdog:
            worker = kafka_worker(settings, model, guard=watchdog.guard)
            values = articles(point.mix, len(due_s), seed=seed)
            client.say(Job.between(topics, bench.cluster.bootstrap_servers, PARTITIONS, values, due_s))
            talk = pool.submit(_talk, bench, client, engine, worker)
            worker.run()
            seen, load, transactions = talk.result()
    return Measured(
        point,
        len(due_s) / seconds,
        [1000 * (seen_s - when_s) for seen_s, when_s in zip(seen["seen_s"], due_s, strict=True)],
        rate_between(seen["seen_s"], seconds / 3, seconds),
        1000 * statistics.median(engine.run_s),
        transactions,
        1000 * percentile(seen["late_s"], 0.99),
        seen["cores"],
        load,
    )


def _talk(bench: Bench, client: Child, engine: TimedEngine, worker: Worker) -> tuple[dict[str, Any], Load, int]:
    """Measure between the client's first and last article; always stops the worker in the end."""
    try:
        client.hear()
        engine.run_s.clear()
        meter, before = bench.meter(), worker.counters.transactions
        return client.hear(), meter.read(), worker.counters.transactions - before
    finally:
        worker.stop()


def rate_between(seen_s: Sequence[float], start_s: float, stop_s: float) -> float:
    """Articles per second that became visible in [start_s, stop_s)."""
    return sum(start_s <= each < stop_s for each in seen_s) / (stop_s - start_s)
