"""Measures the worker on a backlog: articles per second when there are always more."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from enricher.app.building import kafka_worker
from enricher.runtime.watchdog import Watchdog
from tools.bench.bench import Bench
from tools.bench.load import Mix, articles
from tools.bench.repeating import Run

_PROBE = {"news": 24, "headlines": 240, "long": 6, "mixed": 60}
"""Articles with which the rate is estimated: about a second of work on two cores."""


def run_backlog(
    bench: Bench, mix: Mix, count: int, changes: Mapping[str, Mapping[str, object]] = MappingProxyType({})
) -> Run:
    """`count` articles, all there before the worker starts; the rate is from its first read to its last commit.

    `changes`: settings by group, as `settings_for` takes them.
    """
    with bench.topics(articles(mix, count)) as topics, Watchdog() as watchdog:
        settings = bench.settings_for(topics, **changes)
        worker = kafka_worker(settings, bench.model, guard=watchdog.guard, until_caught_up=True)
        meter = bench.meter()
        worker.run()
        load = meter.read()
    assert worker.counters.published == count, "a backlog is done to its end"
    return Run(count / worker.counters.working_s, load, worker.counters.as_dict())


def count_for(bench: Bench, mix: Mix, seconds: float) -> int:
    """How many articles take about `seconds` here, estimated from a short cold run, which must not be measured itself."""
    return max(_PROBE[mix], round(run_backlog(bench, mix, _PROBE[mix]).rate * seconds))
