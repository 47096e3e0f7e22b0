"""Measures one point once: a worker under a steady load, and the latency and cost of its articles."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from enricher.worker.build.workers import kafka_worker
from enricher.worker.runtime.watchdog import Watchdog
from tools.bench.arrivals import poisson
from tools.bench.bench import PARTITIONS, Bench
from tools.bench.child import Child
from tools.bench.legs.latency.measured import Batching, Measured
from tools.bench.legs.latency.stages import StageTimes, stage_times
from tools.bench.load import Mix, articles
from tools.bench.machine import Load, cpu_s
from tools.bench.open_loop import Job
from tools.bench.peers.contenders import order
from tools.bench.repeating import percentile
from tools.bench.timeline import Timeline
from tools.bench.watching import calls_of, run_meanwhile
from tools.only_task import tasks_of
from tools.topics import Topics

if TYPE_CHECKING:
    from enricher.worker.stats.counters import Counters
    from tools.bench.peers.processes import PeerProcess
    from tools.bench.policy import Policy
    from tools.bench.watching import Call


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

    def job(self, bench: Bench, topics: Topics, *, traced: bool = False) -> Job:
        return Job.between(topics, bench.cluster.bootstrap_servers, PARTITIONS, self.values, self.due_s, traced=traced)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The client's report, and the processor time meanwhile."""

    start_s: float
    client: Mapping[str, Any]
    load: Load
    worker_cpu_s: float


def measure_worker(bench: Bench, traffic: Traffic, policy: Policy, *, traced: bool = False) -> Measured:
    """Run the worker here, and publisher and reader in another process, until every article is visible."""
    timeline = Timeline()
    with (
        timeline.watching(bench.model) if traced else nullcontext(),
        calls_of(bench.model.engine, "run") as runs,
        bench.topics() as topics,
        Child("tools.bench.open_loop") as client,
        Watchdog() as watchdog,
    ):
        settings = bench.settings_for(topics, **policy.changes)
        worker = kafka_worker(settings, tasks_of(settings, bench.model), guard=watchdog.guard)
        batching = _BatchingMeter(worker.counters, runs)
        client.say(traffic.job(bench, topics, traced=traced))
        seen = run_meanwhile(worker, lambda: _watch(bench, client, time.process_time, batching.begin))
    stages = None
    if traced:
        every = stage_times(timeline, seen.client, traffic.due_s, seen.start_s)
        stages = StageTimes(every.rows[traffic.first_counted :])
    return _result(traffic, seen, batching.transactions, batching.read(), stages)


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
        return counters.transactions, counters.batches, counters.real_tokens, counters.padded_tokens


def _result(
    traffic: Traffic,
    seen: _Seen,
    transactions: float,
    batching: Batching | None = None,
    stages: StageTimes | None = None,
) -> Measured:
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
        stages,
    )


def rate_between(seen_s: Sequence[float], start_s: float, stop_s: float) -> float:
    """Articles per second that became visible in [start_s, stop_s)."""
    return sum(start_s <= each < stop_s for each in seen_s) / (stop_s - start_s)
