"""The worker at work, watched: processor time by whom, and every call of the model and of the tokenizer.

Counted from the first record read to the last commit: connecting, joining the group and leaving it are outside.
Processor time, not the clock's: waiting costs nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

from enricher.app import Model, kafka_worker
from enricher.records import DeadLetter, Ticket
from enricher.settings import Settings
from enricher.stats.counters import Counters
from enricher.worker.loop import Worker
from enricher.worker.ports import Tracing
from tools.bench.bench import Bench
from tools.bench.machine import Load, cpu_s


@dataclass(frozen=True, slots=True)
class Moment:
    """Seconds at one moment: the clock's, and the processor's for this process, for this thread and for the broker."""

    at_s: float
    process_s: float
    thread_s: float
    broker_s: float

    @classmethod
    def now(cls, broker_pids: Collection[int] = ()) -> Moment:
        """Now, in the calling thread."""
        return cls(time.monotonic(), time.process_time(), time.thread_time(), sum(map(cpu_s, broker_pids)))


class WatchedCounters(Counters):
    """Counts as the worker's own, and notes the moments of the first read and of each commit, in the loop's thread."""

    def __init__(self, broker_pids: Callable[[], Collection[int]]) -> None:
        super().__init__()
        self._broker_pids = broker_pids
        self.began = self.ended = Moment(0.0, 0.0, 0.0, 0.0)

    def count_read(self, tickets: Sequence[Ticket], now_s: float) -> None:
        """Records arrived."""
        if tickets and not self.read:
            self.began = Moment.now(self._broker_pids())
        super().count_read(tickets, now_s)

    def count_published(
        self,
        tickets: Sequence[Ticket],
        began_s: float,
        now_s: float,
        substitutes: Mapping[Ticket, DeadLetter] = MappingProxyType({}),
    ) -> None:
        """A transaction with these tickets was committed."""
        super().count_published(tickets, began_s, now_s, substitutes)
        self.ended = Moment.now(self._broker_pids())


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a watched function: on which thread, when, and how much processor time it took there."""

    thread: int
    began_s: float
    ended_s: float
    cpu_s: float


@contextmanager
def calls_of(owner: object, name: str) -> Iterator[list[Call]]:
    """Every call of the method `name` of `owner`, on any thread, while the body runs."""
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
    """One backlog, worked off. Times are seconds of the processor, summed over threads, but for `seconds`."""

    counters: WatchedCounters
    runs: Sequence[Call]
    """Of the model, one per batch."""
    tokenizations: Sequence[Call]
    load: Load

    @property
    def seconds(self) -> float:
        """By the clock, from the first read to the last commit."""
        return self.counters.ended.at_s - self.counters.began.at_s

    @property
    def model_s(self) -> float:
        """In the runs of the model."""
        return sum(call.cpu_s for call in self.runs)

    @property
    def tokenizer_s(self) -> float:
        """In the calls of the tokenizer."""
        return sum(call.cpu_s for call in self.tokenizations)

    @property
    def loop_s(self) -> float:
        """In the loop's thread."""
        return self.counters.ended.thread_s - self.counters.began.thread_s

    @property
    def model_and_client_s(self) -> float:
        """Both together: where the model computes on threads of its own, they cannot be told apart."""
        return self.model_s + self.client_s

    @property
    def client_s(self) -> float:
        """In all other threads of the process: the Kafka client's, and the hand-over to and from the threads."""
        process_s = self.counters.ended.process_s - self.counters.began.process_s
        return process_s - self.model_s - self.tokenizer_s - self.loop_s

    @property
    def broker_s(self) -> float:
        """In the broker's processes."""
        return self.counters.ended.broker_s - self.counters.began.broker_s


def work_off(
    bench: Bench,
    model: Model,
    settings: Settings,
    *,
    counters: WatchedCounters | None = None,
    tracing: Tracing | None = None,
    beside: Callable[[Worker], AbstractContextManager[object]] = nullcontext,
) -> Work:
    """Run a worker until it has caught up with its input topic, and watch it; `beside` is what goes on meanwhile."""
    with calls_of(model.engine, "run") as runs, calls_of(model.tokenizer, "tokenize") as tokenizations:
        worker = kafka_worker(settings, model, until_caught_up=True, tracing=tracing)
        worker.counters = counters = counters or WatchedCounters(bench.broker_pids)
        with beside(worker):
            meter = bench.meter()
            worker.run()
            return Work(counters, runs, tokenizations, meter.read())
