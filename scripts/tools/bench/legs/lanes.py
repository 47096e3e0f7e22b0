"""The leg `lanes`: how long headlines take at 10 % load beside a backlog, in a topic before it and in the same one."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from enricher.worker.build.workers import kafka_worker
from enricher.worker.loop.loop import Worker
from enricher.worker.runtime.watchdog import Watchdog
from tools.bench.arrivals import poisson
from tools.bench.backlog import count_for, run_backlog
from tools.bench.bench import PARTITIONS, Bench
from tools.bench.child import Child
from tools.bench.load import articles
from tools.bench.open_loop import Job
from tools.bench.outcome import Outcome, Table
from tools.bench.repeating import in_turns, percentile, spreads_of
from tools.bench.watching import run_meanwhile
from tools.changed_settings import change
from tools.only_task import tasks_of
from tools.topics import make_topics
from tools.waiting import wait_until

ABOUT = (
    "Headlines arrive at 10 % of the rate at which a backlog of them is done (Poisson, open loop, latency from when each is "
    "due), while another topic has a longer backlog of news articles. Beside it the same with "
    "the backlog in the same topic, where headlines wait until it is done, and without a backlog."
)
LOAD = 0.1
SECONDS, QUICK_SECONDS = 20.0, 3.0
_BACKLOG = 1.5
"""The work in the backlog, as a multiple of that time."""
_SMALL = 24
"""Articles that show that the worker has begun, where there is no backlog."""
_BEGIN_S = 120.0
_GRACE_S = 300.0


@dataclass(frozen=True, slots=True)
class LaneRun:
    """One contender's run. `backlog_per_s`: articles of the backlog that were done per second meanwhile."""

    latencies_ms: Sequence[float]
    backlog_per_s: float

    @property
    def p50_ms(self) -> float:
        """Median latency of the headlines."""
        return percentile(self.latencies_ms, 0.5)

    @property
    def p99_ms(self) -> float:
        """Their 99th percentile; with fewer than a hundred, close to the longest."""
        return percentile(self.latencies_ms, 0.99)


def measure(bench: Bench) -> Outcome:
    """Run the leg: about three minutes a repetition."""
    seconds = QUICK_SECONDS if bench.quick else SECONDS
    bench.say("what a backlog takes")
    headlines_per_s = run_backlog(bench, "headlines", count_for(bench, "headlines", seconds / 4)).rate
    backlog = count_for(bench, "news", _BACKLOG * seconds)
    due_s = poisson(LOAD * headlines_per_s, seconds, seed=1) or [0.0]
    run = partial(_run, bench, due_s)
    contenders: dict[str, Callable[[], LaneRun]] = {
        "two lanes": partial(run, backlog, lanes=True),
        "one topic": partial(run, backlog, lanes=False),
        "no backlog": partial(run, _SMALL, lanes=True),
    }
    return outcome(in_turns(contenders, bench.repetitions, bench.say), len(due_s), headlines_per_s, backlog)


def outcome(runs: dict[str, list[LaneRun]], headlines: int, headlines_per_s: float, backlog: int) -> Outcome:
    """Compare the contenders. `headlines_per_s`: how fast a backlog of headlines is done."""
    spreads = spreads_of(runs, ("p50_ms", "p99_ms", "backlog_per_s"))
    figures: dict[str, Any] = {
        "headlines": headlines,
        "headlines_backlog_per_s": headlines_per_s,
        "backlog_articles": backlog,
        **spreads,
    }
    columns = ("", "p50 of headlines, ms", "p99, ms", "backlog, articles/s meanwhile")
    rows = [[who, *map(str, each.values())] for who, each in spreads.items()]
    note = (
        f"{headlines} headlines a run at {LOAD:.0%} of {headlines_per_s:,.0f} per second; a backlog of {backlog:,} news "
        "articles. In one topic the figures grow with the backlog."
    )
    return Outcome(figures, [Table("Headlines beside a backlog", columns, rows, note)])


def _run(bench: Bench, due_s: Sequence[float], backlog: int, *, lanes: bool) -> LaneRun:
    with (
        bench.topics(articles("news", backlog)) as topics,
        Child("tools.bench.open_loop") as client,
        Watchdog() as watchdog,
    ):
        settings, lane = bench.settings_for(topics), f"{topics.input}.now"
        if lanes:
            make_topics(topics.bootstrap_servers, [lane], PARTITIONS)
            settings = change(settings, kafka={"input_topics": (lane, topics.input)})
        worker = kafka_worker(settings, tasks_of(settings, bench.model), guard=watchdog.guard)
        values = [value.decode() for value in articles("headlines", len(due_s), seed=1)]
        outputs = [topics.output, topics.dead_letters]
        source = lane if lanes else topics.input
        job = Job(topics.bootstrap_servers, source, outputs, PARTITIONS, values, [*due_s], warm_up=0, grace_s=_GRACE_S)
        return run_meanwhile(worker, partial(_watch, worker, client, job))


def _watch(worker: Worker, client: Child, job: Job) -> LaneRun:
    if not wait_until(lambda: worker.counters.published > 0, _BEGIN_S):
        raise TimeoutError(f"the worker has published nothing within {_BEGIN_S:g} s")
    client.say(job)
    client.hear()
    began_s, before = time.monotonic(), worker.counters.published
    seen_s = client.hear()["seen_s"]
    seconds, done = time.monotonic() - began_s, worker.counters.published - before
    latencies_ms = [1000 * (at_s - due_s) for at_s, due_s in zip(seen_s, job.due_s, strict=True)]
    return LaneRun(latencies_ms, max(0, done - len(job.values)) / seconds)
