"""Measures the worker on a backlog: articles per second when there are always more."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from enricher.worker.build.loaded_tasks import Tasks
from enricher.worker.build.workers import kafka_worker
from enricher.worker.runtime.watchdog import Watchdog
from enricher.worker.settings import Settings
from tools.bench.bench import Bench
from tools.bench.load import Mix, articles
from tools.bench.repeating import Run
from tools.only_task import tasks_of

_PROBE = {"news": 24, "headlines": 240}
"""Articles with which the rate is estimated: about a second of work on two cores."""


def run_backlog(
    bench: Bench, mix: Mix, count: int, changes: Mapping[str, Mapping[str, object]] = MappingProxyType({})
) -> Run:
    """`count` articles, all there before the worker starts; the rate is from its first read to its last commit.

    `changes`: settings by group, as `settings_for` takes them.
    """
    with bench.topics(articles(mix, count)) as topics:
        chosen = bench.settings_for(topics, **changes)
        return run_worker(bench, chosen, tasks_of(chosen, bench.model), count)


def run_worker(bench: Bench, settings: Settings, tasks: Tasks, count: int) -> Run:
    """A worker until it has caught up with the `count` articles of its input topic; the detail is its counters."""
    with Watchdog() as watchdog:
        worker = kafka_worker(settings, tasks, guard=watchdog.guard, until_caught_up=True)
        meter = bench.meter()
        worker.run()
        load = meter.read()
    assert worker.counters.published == count, "a backlog is done to its end"
    return Run(count / worker.counters.working_s, load, worker.counters.as_dict())


def count_for(bench: Bench, mix: Mix, seconds: float) -> int:
    """How many articles take about `seconds` here, estimated from a short cold run, which must not be measured itself."""
    return max(_PROBE[mix], round(run_backlog(bench, mix, _PROBE[mix]).rate * seconds))
