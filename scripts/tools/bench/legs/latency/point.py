"""One measuring point of the leg `latency`: a worker under a steady load, the latency and cost of its articles."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

from enricher.worker.runtime.watchdog import Watchdog
from enricher.worker.stats import Counters
from enricher.worker.wiring.workers import kafka_worker
from tools.bench.bench import PARTITIONS, Bench
from tools.bench.child import Child
from tools.bench.legs.peers import order
from tools.bench.load import Mix, articles, poisson
from tools.bench.machine import Load, cpu_s
from tools.bench.open_loop import Job
from tools.bench.peers.processes import PeerProcess
from tools.bench.repeating import Spread, p99, percentile
from tools.bench.watching import Call, calls_of, run_meanwhile
from tools.topics import Topics
from tools.worker_parts import tasks_of

OURS, NAIVE = "worker", "naive loop"


@dataclass(frozen=True, slots=True)
class Point:
    """One measuring point. `load`: share of the capacity, 0 to 1. `who`: `OURS` or `NAIVE`."""

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

    def spread(self, value: str) -> Spread:
        """The spread over the repetitions of one of `Measured.values`."""
        return Spread.of([run.values[value] for run in self.runs])

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


# ---- measuring

WARM_UP_S = 2.0
"""The latency of the first articles does not count: brokers create the files of new topics then, which takes up to 0.1 s."""


@dataclass(frozen=True, slots=True)
class Traffic:
    """Articles, and when each of them is due, in seconds from the start. `seconds`: how long they keep coming."""

    values: Sequence[bytes]
    due_s: Sequence[float]
    seconds: float

    @classmethod
    def at(cls, mix: Mix, rate_per_s: float, seconds: float, *, seed: int) -> Traffic:
        """Poisson arrivals for `WARM_UP_S` and then `seconds`, in which there is at least one.

        The same seed gives the same articles at the same times.
        """
        due_s = poisson(rate_per_s, WARM_UP_S + seconds, seed=seed)
        if not due_s or due_s[-1] < WARM_UP_S:
            due_s.append(WARM_UP_S)
        return cls(articles(mix, len(due_s), seed=seed), due_s, WARM_UP_S + seconds)

    @property
    def first_counted(self) -> int:
        """The number of the first article that counts."""
        return next(number for number, due_s in enumerate(self.due_s) if due_s >= WARM_UP_S)

    def job(self, bench: Bench, topics: Topics) -> Job:
        return Job.between(topics, bench.cluster.bootstrap_servers, PARTITIONS, self.values, self.due_s)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The client's report, and the processor time meanwhile."""

    start_s: float
    client: Mapping[str, Any]
    load: Load
    worker_cpu_s: float


def measure_worker(bench: Bench, traffic: Traffic) -> Measured:
    """Run the worker here, and publisher and reader in another process, until every article is visible."""
    with (
        calls_of(bench.model.engine, "run") as runs,
        bench.topics() as topics,
        Child("tools.bench.open_loop") as client,
        Watchdog() as watchdog,
    ):
        settings = bench.settings_for(topics)
        worker = kafka_worker(settings, tasks_of(settings, bench.model), guard=watchdog.guard)
        batching = _BatchingMeter(worker.counters, runs)
        client.say(traffic.job(bench, topics))
        seen = run_meanwhile(worker, lambda: _watch(bench, client, time.process_time, batching.begin))
    return _result(traffic, seen, batching.transactions, batching.read())


def measure_naive(bench: Bench, traffic: Traffic, process: PeerProcess) -> Measured:
    """The same for the naive loop, which runs in `process`."""
    with bench.topics() as topics, Child("tools.bench.open_loop") as client, ThreadPoolExecutor(1) as pool:
        job = traffic.job(bench, topics)
        client.say(job)
        done = pool.submit(process.ask, **order(topics, {}, job.warm + len(traffic.values)))
        seen = _watch(bench, client, lambda: cpu_s(process.pid))
        transferred = done.result()
    # The loop counts its warm-up too.
    transactions = transferred["transactions"] * len(traffic.values) / transferred["articles"]
    return _result(traffic, seen, transactions)


def _watch(
    bench: Bench, client: Child, worker_cpu_s: Callable[[], float], begin: Callable[[], None] = lambda: None
) -> _Seen:
    """Measure between the client's first and last article. `begin` is called at the first one."""
    start_s = client.hear()["start_s"]
    begin()
    meter, before_s = bench.meter(), worker_cpu_s()
    answer = client.hear()
    return _Seen(start_s, answer, meter.read(), worker_cpu_s() - before_s)


class _BatchingMeter:
    """The growth of the worker's counters from `begin` on."""

    def __init__(self, counters: Counters, runs: list[Call]) -> None:
        self._counters = counters
        self._runs = runs
        self.begin()

    def begin(self) -> None:
        self._runs.clear()
        self._before = self._now()

    @property
    def transactions(self) -> int:
        return self._counters.transactions - self._before[0]

    def read(self) -> Batching:
        _, batches, real, padded = (now - before for now, before in zip(self._now(), self._before, strict=True))
        run_ms = 1000 * statistics.median(run.ended_s - run.began_s for run in self._runs)
        return Batching(padded / real, padded / batches, run_ms)

    def _now(self) -> tuple[int, int, int, int]:
        counters = self._counters
        return (counters.transactions, counters.batches, counters.real_tokens, counters.padded_tokens)


def _result(traffic: Traffic, seen: _Seen, transactions: float, batching: Batching | None = None) -> Measured:
    client, due_s, load = seen.client, traffic.due_s, seen.load
    latencies_ms = [1000 * (seen_s - when_s) for seen_s, when_s in zip(client["seen_s"], due_s, strict=True)]
    return Measured(
        latencies_ms[traffic.first_counted :],
        len(due_s),
        load.seconds,
        rate_between(client["seen_s"], traffic.seconds / 3, traffic.seconds),
        transactions,
        seen.worker_cpu_s,
        load.broker_cores * load.seconds,
        client["cores"],
        load.others_cores,
        1000 * percentile([sent_s - when_s for sent_s, when_s in zip(client["sent_s"], due_s, strict=True)], 0.99),
        batching,
    )


def rate_between(seen_s: Sequence[float], start_s: float, stop_s: float) -> float:
    """Articles per second that became visible in [start_s, stop_s)."""
    return sum(start_s <= each < stop_s for each in seen_s) / (stop_s - start_s)
