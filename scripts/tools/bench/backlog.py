"""The worker over a backlog: how many articles it does in a second when there are always more."""

from __future__ import annotations

from enricher.app import kafka_worker
from enricher.runtime.watchdog import Watchdog
from tools.bench.bench import Bench
from tools.bench.load import Mix, articles
from tools.bench.repeating import Run

_PROBE = {"news": 24, "headlines": 240, "long": 6, "mixed": 60}
"""Articles to guess the rate from: a second's work, about, on two cores."""


def run_backlog(bench: Bench, mix: Mix, count: int) -> Run:
    """`count` articles, all there before the worker starts; the rate is from its first read to its last commit."""
    with bench.topics(articles(mix, count)) as topics, Watchdog() as watchdog:
        settings = bench.settings_for(topics)
        worker = kafka_worker(settings, bench.model, guard=watchdog.guard, until_caught_up=True)
        meter = bench.meter()
        worker.run()
        load = meter.read()
    assert worker.counters.published == count, "a backlog is done to its end"
    return Run(count / worker.counters.working_s, load, worker.counters.as_dict())


def count_for(bench: Bench, mix: Mix, seconds: float) -> int:
    """How many articles take about so long here, from a short run. Measure with another one: this one starts cold."""
    return max(_PROBE[mix], round(run_backlog(bench, mix, _PROBE[mix]).rate * seconds))
