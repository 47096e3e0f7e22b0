"""The leg `latency`: time from publish to visible at 10, 50 and 90 % of capacity, and what it costs.

Capacity is measured first, as what becomes visible per second when more arrives than the worker can do, with the same
publisher and reader on the same cores. Arrivals are Poisson, fixed beforehand, and the same for all that are compared.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import groupby
from typing import Any

from enricher.worker.runtime.watchdog import Watchdog
from enricher.worker.wiring.workers import kafka_worker
from tools.bench.bench import PARTITIONS, Bench
from tools.bench.child import Child
from tools.bench.legs.peers import order
from tools.bench.load import Mix, articles, poisson
from tools.bench.open_loop import Job
from tools.bench.outcome import Outcome, Plot, Series, Table
from tools.bench.runs import Spread, p99, percentile, quiet
from tools.bench.watching import count_for, run_backlog
from tools.topics import Topics
from tools.waiting import cpu_s
from tools.worker_parts import tasks_of

ABOUT = (
    "From publish to visible for a read_committed consumer, with open-loop Poisson arrivals: latency counts from when an "
    "article was due, so that a slow worker cannot hide the wait of later ones. Capacity is what becomes visible per "
    "second when 1.5 times the worker's backlog rate arrives. Broker, publisher and reader share its cores. The naive "
    "loop has no model: it polls up to 64 records or 0.1 s, and writes what came in one transaction."
)
LOADS = (0.1, 0.5, 0.9)
NAIVE_LOADS = LOADS[:2]
OVERLOAD = 1.5
"""Share of the backlog rate: certainly more than the worker can do beside publisher and reader."""
CAPACITY_S, QUICK_S = 6.0, 3.0
QUICK_ARTICLES = 10
SECONDS: dict[Mix, float] = {"headlines": 10.0, "news": 15.0}
"""Duration of one point. Fewer news articles arrive per second, so they get more time."""
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
    others_cores: float
    publisher_late_p99_ms: float

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
            "others_cores": self.others_cores,
            "publisher_late_p99_ms": self.publisher_late_p99_ms,
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
    def p99_ms(self) -> float | None:
        """99th percentile of all articles; None with fewer than a hundred."""
        return p99(self.latencies_ms)

    def spread(self, value: str) -> Spread:
        """The spread over the repetitions of one of `Measured.values`."""
        return Spread.of([run.values[value] for run in self.runs])

    def as_dict(self) -> dict[str, Any]:
        """The figures as JSON, without the single latencies."""
        return {
            **asdict(self.point),
            "articles": len(self.latencies_ms),
            **{name: self.spread(name) for name in self.runs[0].values},
            "p50_ms": self.p50_ms,
            "p99_ms": self.p99_ms,
        }


# ---- the course of the leg

Step = tuple[Point, Callable[[], Measured]]
"""The point that a step measures, and the function."""


def measure(bench: Bench) -> Outcome:
    """Run the leg: five repetitions take about 15 minutes."""
    points: defaultdict[Point, list[Measured]] = defaultdict(list)
    capacity = {mix: _capacity(bench, mix) for mix in SECONDS}
    with Child("tools.bench.peers.transfer") as naive:
        steps = [step for number in range(bench.repetitions) for step in _repetition(bench, capacity, naive, number)]
        for number, (point, contender) in enumerate(steps, 1):
            bench.say(f"{number} of {len(steps)}: {point}")
            points[point].append(quiet(contender, bench.repetitions, bench.say))
    return outcome(capacity, [Repeated(*each) for each in points.items()])


def _capacity(bench: Bench, mix: Mix) -> float:
    bench.say(f"capacity, {mix}")
    seconds = QUICK_S if bench.quick else CAPACITY_S
    backlog_per_s = run_backlog(bench, mix, count_for(bench, mix, seconds)).rate
    return measure_worker(bench, Traffic.at(mix, OVERLOAD * backlog_per_s, seconds, seed=len(mix))).visible_per_s


def _repetition(bench: Bench, capacity: Mapping[Mix, float], naive: Child, number: int) -> Iterator[Step]:
    """One of each. What is compared runs one after the other, in turns the one and the other first."""
    for mix in SECONDS:
        for load in LOADS:
            traffic = _traffic(bench, mix, load, load * capacity[mix], number)
            contenders: list[tuple[str, Callable[[], Measured]]] = [(OURS, partial(measure_worker, bench, traffic))]
            if load in NAIVE_LOADS:
                contenders.append((NAIVE, partial(measure_naive, bench, traffic, naive)))
            for who, contender in contenders[:: -1 if number % 2 else 1]:
                yield Point(mix, load, who), contender


def _traffic(bench: Bench, mix: Mix, load: float, rate_per_s: float, number: int) -> Traffic:
    seconds = min(SECONDS[mix], max(QUICK_S, QUICK_ARTICLES / rate_per_s)) if bench.quick else SECONDS[mix]
    return Traffic.at(mix, rate_per_s, seconds, seed=10 * number + round(10 * load))


# ---- one point

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


def measure_worker(bench: Bench, traffic: Traffic) -> Measured:
    """Run the worker here, and publisher and reader in another process, until every article is visible."""
    with (
        bench.topics() as topics,
        Child("tools.bench.open_loop") as client,
        Watchdog() as watchdog,
    ):
        settings = bench.settings_for(topics)
        worker = kafka_worker(settings, tasks_of(settings, bench.model), guard=watchdog.guard)
        client.say(traffic.job(bench, topics))
        with ThreadPoolExecutor(1) as pool:
            transactions = partial(getattr, worker.counters, "transactions")
            measured = pool.submit(_watch, bench, traffic, client, time.process_time, transactions)
            measured.add_done_callback(lambda _: worker.stop())
            worker.run()
            return measured.result()


def measure_naive(bench: Bench, traffic: Traffic, process: Child) -> Measured:
    """The same for the naive loop, which runs in `process`."""
    with bench.topics() as topics, Child("tools.bench.open_loop") as client, ThreadPoolExecutor(1) as pool:
        job = traffic.job(bench, topics)
        client.say(job)
        done = pool.submit(process.ask, **order(topics, {}, job.warm + len(traffic.values)))
        measured = _watch(bench, traffic, client, lambda: cpu_s(process.pid), lambda: 0)
        transferred = done.result()
    # The loop counts its warm-up too.
    transactions = transferred["transactions"] * len(traffic.values) / transferred["articles"]
    return replace(measured, transactions=transactions)


def _watch(
    bench: Bench, traffic: Traffic, client: Child, worker_cpu_s: Callable[[], float], transactions: Callable[[], int]
) -> Measured:
    """Measure between the client's first and last article."""
    client.hear()  # it has warmed up, and begins
    meter, before_s, before = bench.meter(), worker_cpu_s(), transactions()
    answer = client.hear()
    load, used_s, ended = meter.read(), worker_cpu_s() - before_s, transactions() - before
    due_s = traffic.due_s
    late_s = [sent_s - when_s for sent_s, when_s in zip(answer["sent_s"], due_s, strict=True)]
    latencies_ms = [1000 * (seen_s - when_s) for seen_s, when_s in zip(answer["seen_s"], due_s, strict=True)]
    return Measured(
        latencies_ms[traffic.first_counted :],
        articles=len(due_s),
        seconds=load.seconds,
        visible_per_s=rate_between(answer["seen_s"], traffic.seconds / 3, traffic.seconds),
        transactions=ended,
        worker_cpu_s=used_s,
        broker_cpu_s=load.broker_cores * load.seconds,
        others_cores=load.others_cores,
        publisher_late_p99_ms=1000 * percentile(late_s, 0.99),
    )


def rate_between(seen_s: Sequence[float], start_s: float, stop_s: float) -> float:
    """Articles per second that became visible in [start_s, stop_s)."""
    return sum(start_s <= each < stop_s for each in seen_s) / (stop_s - start_s)


# ---- report


def outcome(capacity: Mapping[Mix, float], points: Sequence[Repeated]) -> Outcome:
    figures = {"capacity_articles_per_s": dict(capacity), "points": [each.as_dict() for each in points]}
    return Outcome(figures, [_table(capacity, points)], [_plot(points)])


def _table(capacity: Mapping[Mix, float], points: Sequence[Repeated]) -> Table:
    late_ms = max(run.publisher_late_p99_ms for each in points for run in each.runs)
    capacities = ", ".join(f"{rate:.1f} {mix} a second" for mix, rate in capacity.items())
    rows = [
        {
            "": str(each.point),
            "articles": len(each.latencies_ms),
            "articles/s": each.spread("articles_per_s").median,
            "p50, ms": each.p50_ms,
            "by repetition": f"{each.spread('p50_ms'):.0f}",
            "p99, ms": "-" if each.p99_ms is None else f"{each.p99_ms:.0f}",
            "p50 of the last third": each.spread("p50_ms_of_the_last_third").median,
            "others, cores": each.spread("others_cores").high,
            "articles per transaction": each.spread("articles_per_transaction").median,
            "worker, ms": each.spread("worker_ms_per_article").median,
            "broker, ms": each.spread("broker_ms_per_article").median,
        }
        for each in points
    ]
    return Table.of(
        "From publish to visible, and what an article costs",
        rows,
        f"Capacity, beside publisher and reader: {capacities}. All repetitions together. "
        f"The publisher sent at most {late_ms:.1f} ms late (p99 of a repetition), which counts as latency. Costs are of a "
        "core; the broker's includes what it does for publisher and reader.",
    )


def _plot(points: Sequence[Repeated]) -> Plot:
    """p50 and p99 of our worker; p99 only where there is one."""
    series = []
    ours = sorted((each for each in points if each.point.who == OURS), key=lambda each: each.point.mix)
    for mix, group in groupby(ours, key=lambda each: each.point.mix):
        ordered = sorted(group, key=lambda each: each.point.load)
        loads = [100 * each.point.load for each in ordered]
        series.append(Series(f"{mix}, p50", loads, [each.p50_ms for each in ordered]))
        enough = [(at, each.p99_ms) for at, each in zip(loads, ordered, strict=True) if each.p99_ms is not None]
        if enough:
            series.append(Series(f"{mix}, p99", [at for at, _ in enough], [ms for _, ms in enough]))
    return Plot("latency-load", "From publish to visible, by load", "lines", "load, % of capacity", "ms", series)
