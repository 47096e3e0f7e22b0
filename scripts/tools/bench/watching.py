"""Runs the worker in this process: over a backlog, and watched: CPU time by thread, every call of model and tokenizer.

Measured from the first record read to the last commit, without connecting, joining the group and leaving it. CPU time,
not wall time: waiting costs nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from enricher.worker.records import Ticket
from enricher.worker.runtime.watchdog import Watchdog
from enricher.worker.settings import Settings
from enricher.worker.stats import Counters
from enricher.worker.wiring.loaded_tasks import Model
from enricher.worker.wiring.workers import kafka_worker
from tools.bench.bench import Bench
from tools.bench.load import Mix, articles
from tools.bench.runs import Load, Run
from tools.waiting import cpu_s
from tools.worker_parts import tasks_of


@dataclass(frozen=True, slots=True)
class Moment:
    """Clock readings in seconds at one moment: wall clock, and CPU time of this process, this thread and the broker."""

    at_s: float
    process_s: float
    thread_s: float
    broker_s: float

    @classmethod
    def now(cls, broker_pids: Collection[int] = ()) -> Moment:
        """Read the clocks; `thread_s` is the calling thread's."""
        return cls(time.monotonic(), time.process_time(), time.thread_time(), sum(map(cpu_s, broker_pids)))


class WatchedCounters(Counters):
    """The worker's counters; also records the moments of the first read and of each commit, in the loop's thread."""

    def __init__(self, broker_pids: Callable[[], Collection[int]]) -> None:
        super().__init__()
        self._broker_pids = broker_pids
        self.began = self.ended = Moment(0.0, 0.0, 0.0, 0.0)

    def count_read(self, tickets: Sequence[Ticket], now_s: float) -> None:
        if tickets and not self.read:
            self.began = Moment.now(self._broker_pids())
        super().count_read(tickets, now_s)

    def count_published(self, *arguments: Any, **named: Any) -> None:  # noqa: ANN401  what the worker counts
        super().count_published(*arguments, **named)
        self.ended = Moment.now(self._broker_pids())


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a watched function: its thread, begin and end (monotonic), and its CPU time there."""

    thread: int
    began_s: float
    ended_s: float
    cpu_s: float


@contextmanager
def calls_of(owner: object, name: str) -> Iterator[list[Call]]:
    """Record every call of the method `name` of `owner`, on any thread, inside the context."""
    calls: list[Call] = []
    method = getattr(owner, name)

    def watched(argument: Any) -> Any:  # noqa: ANN401  whatever the method takes and gives
        began_s, began_cpu_s = time.monotonic(), time.thread_time()
        answer = method(argument)
        calls.append(Call(threading.get_ident(), began_s, time.monotonic(), time.thread_time() - began_cpu_s))
        return answer

    with patch.object(owner, name, watched):
        yield calls


@dataclass(frozen=True, slots=True)
class Work:
    """One processed backlog. Times are CPU seconds summed over threads, except `seconds`."""

    counters: WatchedCounters
    runs: Sequence[Call]
    """Calls of the model, one per batch."""
    tokenizations: Sequence[Call]
    load: Load

    @property
    def seconds(self) -> float:
        """Wall time from the first read to the last commit."""
        return self.counters.ended.at_s - self.counters.began.at_s

    @property
    def tokenizer_s(self) -> float:
        """CPU time in calls of the tokenizer."""
        return sum(call.cpu_s for call in self.tokenizations)

    @property
    def loop_s(self) -> float:
        """CPU time of the loop's thread."""
        return self.counters.ended.thread_s - self.counters.began.thread_s

    @property
    def rest_s(self) -> float:
        """CPU time of all other threads: the model's, the Kafka client's, and the hand-over to and from the worker pool."""
        process_s = self.counters.ended.process_s - self.counters.began.process_s
        return process_s - self.tokenizer_s - self.loop_s

    @property
    def broker_s(self) -> float:
        """CPU time of the broker."""
        return self.counters.ended.broker_s - self.counters.began.broker_s


def work_off(bench: Bench, model: Model, settings: Settings) -> Work:
    """Run a worker until it has caught up with its input topic, and watch it."""
    with (
        calls_of(model.engine, "run") as runs,
        calls_of(model.tokenizer, "tokenize") as tokenizations,
        Watchdog() as watchdog,
    ):
        worker = kafka_worker(settings, tasks_of(settings, model), guard=watchdog.guard, until_caught_up=True)
        worker.counters = counters = WatchedCounters(bench.broker_pids)
        meter = bench.meter()
        worker.run()
        return Work(counters, runs, tokenizations, meter.read())


# ---- backlogs

_PROBE = {"news": 24, "headlines": 240}
"""Articles with which the rate is estimated: about a second of work on two cores."""


def run_backlog(bench: Bench, mix: Mix, count: int) -> Run:
    """`count` articles, all there before the worker starts; the rate is from its first read to its last commit."""
    with bench.topics(articles(mix, count)) as topics:
        return run_worker(bench, bench.model, bench.settings_for(topics), count)


def run_worker(bench: Bench, model: Model, settings: Settings, count: int) -> Run:
    """A worker until it has caught up with the `count` articles of its input topic; the detail is its counters."""
    work = work_off(bench, model, settings)
    assert work.counters.published == count, "a backlog is done to its end"
    return Run(count / work.counters.working_s, work.load, work.counters.as_dict())


def count_for(bench: Bench, mix: Mix, seconds: float) -> int:
    """How many articles take about `seconds` here, estimated from a short cold run, which must not be measured itself."""
    return max(_PROBE[mix], round(run_backlog(bench, mix, _PROBE[mix]).rate * seconds))
