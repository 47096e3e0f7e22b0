"""The simulation loop: time jumps from event to event. Deterministic: the same arrivals give the same statistics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from math import inf
from typing import Protocol

import numpy as np

from enricher.worker.records import Batch, Int32Array, Part, Partition, RawRecord, Ticket, Window
from enricher.worker.rules.load import Load
from tools.bench.simulator.arrivals import Arrival
from tools.bench.simulator.engine import EngineModel, WorkerPool
from tools.bench.simulator.statistics import Statistics


class Scheduler(Protocol):
    """The scheduler's interface: LengthBucketScheduler, or one of `orders`."""

    @property
    def queued_tokens(self) -> int:
        """The sum of the lengths of the windows that wait."""
        ...

    @property
    def max_batch_tokens(self) -> int:
        """The token budget of a batch."""
        ...

    def add(self, windows: Sequence[Window]) -> None:
        """Queue windows."""

    def next_due_s(self) -> float | None:
        """When the next batch is due."""

    def next_batch(self, now_s: float, *, idle_threads: int, load: float) -> Batch | None:
        """The batch to run next."""


class Simulation:
    """One scheduler, one engine, one stream of articles.

    `max_queued_tokens`: articles are admitted while fewer tokens wait, as in the worker; waits count from admission.
    `best_tokens_per_s`: the engine's best rate, for `own_wait_s`. `since_s`: when the statistics begin.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        model: EngineModel,
        arrivals: Iterable[Arrival],
        *,
        best_tokens_per_s: float,
        max_queued_tokens: float = inf,
        since_s: float = 0.0,
    ) -> None:
        self.now_s = 0.0
        self._scheduler, self._model, self._pool = scheduler, model, WorkerPool(model)
        self._arrivals = iter(arrivals)
        self._next = next(self._arrivals, None)
        self._max_queued_tokens = max_queued_tokens
        self._queue = _BestQueue(best_tokens_per_s)
        self._load, self._noted_s = Load(model.concurrency, 0.0), 0.0
        self._behind_s: dict[int, float] = {}
        self._articles: dict[int, int] = {}
        self._statistics = Statistics(scheduler.max_batch_tokens, since_s)

    def run(self, *, drain: bool = True) -> Statistics:
        """Run until the last article has arrived and, with `drain`, the last batch has started."""
        while self._next or drain:
            self._admit()
            self._dispatch()
            running = self._pool.running(self.now_s)
            next_s = min(self._moments(), default=None)
            if next_s is None:
                break
            self.now_s = max(self.now_s, next_s)
            self._note(running)
        return self._statistics

    def _note(self, running: int) -> None:
        """Only the device is simulated, so the loop is taken to have waited all the time."""
        self._load.note(self.now_s, running=running, waited_s=self.now_s - self._noted_s)
        self._noted_s = self.now_s

    def _admit(self) -> None:
        while self._next and self._next.at_s <= self.now_s and self._scheduler.queued_tokens < self._max_queued_tokens:
            arrived_s = self._next.at_s if self._max_queued_tokens == inf else self.now_s
            windows = [window_of(length, arrived_s) for length in self._next.lengths_tokens]
            article = self._statistics.arrived(arrived_s)
            for window in windows:
                self._articles[id(window)] = article
                self._behind_s[id(window)] = self._queue.add(len(window.ids), arrived_s)
            self._scheduler.add(windows)
            self._next = next(self._arrivals, None)

    def _dispatch(self) -> None:
        while self._pool.next_free_s <= self.now_s and (batch := self._next_batch()):
            end_s = self._pool.start(batch, self.now_s)
            behind_s = [self._behind_s.pop(id(window)) for window in batch.windows]
            articles = [self._articles.pop(id(window)) for window in batch.windows]
            self._statistics.ended(articles, end_s)
            computed = self._model.computed_tokens(batch)
            self._statistics.count(batch, behind_s, computed_tokens=computed, now_s=self.now_s, end_s=end_s)

    def _next_batch(self) -> Batch | None:
        idle_threads = self._model.concurrency - self._pool.running(self.now_s)
        return self._scheduler.next_batch(self.now_s, idle_threads=idle_threads, load=self._load.busy)

    def _moments(self) -> Iterator[float]:
        """Times of the next possible events: like the worker's loop, a turn after each arrival and each batch."""
        if self._next and self._scheduler.queued_tokens < self._max_queued_tokens:
            yield self._next.at_s
        end_s = self._pool.next_end_s(self.now_s)
        if end_s is not None and (self._scheduler.queued_tokens or self._next):
            yield end_s
        # While all threads are busy nothing is due before one is free.
        if self._pool.next_free_s <= self.now_s and (due_s := self._scheduler.next_due_s()) is not None:
            yield due_s


class _BestQueue:
    """The queue in front of an engine at its best rate: a lower bound for any scheduler."""

    def __init__(self, tokens_per_s: float) -> None:
        self._tokens_per_s = tokens_per_s
        self._empty_s = 0.0

    def add(self, tokens: int, now_s: float) -> float:
        """Add tokens; returns how long the tokens before them will take from now."""
        behind_s = max(0.0, self._empty_s - now_s)
        self._empty_s = now_s + behind_s + tokens / self._tokens_per_s
        return behind_s


def window_of(length_tokens: int, arrived_s: float) -> Window:
    """A window in which only length and arrival time matter."""
    return Window(_part(), _ids(length_tokens), 0, 0, length_tokens, 0, arrived_s)


@cache
def _ids(length_tokens: int) -> Int32Array:
    return np.zeros(length_tokens, np.int32)


@cache
def _part() -> Part:
    return Part(Ticket(RawRecord(Partition("simulated", 0), 0, None, None), 0.0))
