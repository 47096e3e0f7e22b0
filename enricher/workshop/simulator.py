"""The worker's scheduler on a simulated engine: time jumps from event to event, so hours pass in seconds.

The same arrivals give the same runs. The caller draws conclusions: `freshness` asks whether early batches pay, and
`scripts/bench batching` compares the scheduler with other orders.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from typing import Protocol

import numpy as np

from enricher.worker.records import Batch, Part, Partition, RawRecord, Ticket, Window
from enricher.worker.rules.load import Load

_ARTICLES = Partition("simulated", 0)


class Scheduler(Protocol):
    """Puts windows into batches: a scheduler of the worker, or one to compare it with."""

    @property
    def queued_tokens(self) -> int:
        """The sum of the lengths of the windows that wait."""
        ...

    @property
    def max_batch_tokens(self) -> int:
        """The token budget of a batch."""
        ...

    def add(self, windows: Sequence[Window]) -> None:
        """Queue the windows of one article."""

    def next_due_s(self) -> float | None:
        """When the next batch is due; None if nothing waits."""

    def next_batch(self, now_s: float, *, idle_threads: int, load: float) -> Batch | None:
        """The batch to run now."""


@dataclass(frozen=True, slots=True)
class EngineModel:
    """How long a batch takes: a fixed part and each computed token, at the rate of one thread while all are busy.

    `padding_cost`: the cost of a padding token, as a share of a real one. It is 1 for padded variants, 0 for packed ones,
    and about a tenth if only attention pads.
    """

    concurrency: int
    thread_tokens_per_s: float
    run_overhead_tokens: int
    padding_cost: float = 1.0

    @property
    def packs(self) -> bool:
        """Whether padding costs nothing, so that the worker takes windows in order of arrival."""
        return self.padding_cost == 0

    def computed_tokens(self, batch: Batch) -> float:
        """Real tokens plus the cost of padding, in tokens."""
        return batch.real_tokens + self.padding_cost * (batch.padded_tokens - batch.real_tokens)

    def batch_s(self, batch: Batch) -> float:
        """How long the batch occupies a thread."""
        return (self.run_overhead_tokens + self.computed_tokens(batch)) / self.thread_tokens_per_s

    def longest_batch_s(self, max_batch_tokens: int) -> float:
        """How long the largest batch occupies a thread."""
        return (self.run_overhead_tokens + max_batch_tokens) / self.thread_tokens_per_s

    def capacity_tokens_per_s(self, max_batch_tokens: int) -> float:
        """Real tokens per second of all threads with full batches and no padding: an upper bound for any order."""
        return self.concurrency * max_batch_tokens / self.longest_batch_s(max_batch_tokens)


@dataclass(frozen=True, slots=True)
class Arrival:
    """An article: its arrival time, and the lengths of its windows."""

    at_s: float
    lengths_tokens: Sequence[int]


@dataclass(frozen=True, slots=True)
class Run:
    """A batch, and from when until when it occupied a thread."""

    batch: Batch
    start_s: float
    end_s: float


class Threads:
    """Simulated threads, and until when each is busy."""

    def __init__(self, count: int) -> None:
        self._free_s = [0.0] * count

    @property
    def next_free_s(self) -> float:
        """When the next thread is free; in the past if one is free now."""
        return self._free_s[0]

    def running(self, now_s: float) -> int:
        """How many threads have a batch that ends later than now."""
        return sum(free_s > now_s for free_s in self._free_s)

    def next_end_s(self, now_s: float) -> float | None:
        """When the next of the running batches ends; None if none is running."""
        return min((free_s for free_s in self._free_s if free_s > now_s), default=None)

    def start(self, now_s: float, end_s: float) -> None:
        """Occupy a free thread."""
        assert self.next_free_s <= now_s, "no thread is free"
        heapq.heapreplace(self._free_s, end_s)


class Simulation:
    """One scheduler, one engine, one stream of articles.

    `max_queued_tokens`: articles are admitted while fewer tokens wait, as in the worker, and count as arrived then.
    `on_admitted`: called with the windows of each article. An article's number is the offset of its record.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        engine: EngineModel,
        arrivals: Iterable[Arrival],
        *,
        max_queued_tokens: float = inf,
        on_admitted: Callable[[Sequence[Window]], None] = lambda _windows: None,
    ) -> None:
        self._scheduler, self._engine = scheduler, engine
        self._threads, self._load = Threads(engine.concurrency), Load(engine.concurrency, 0.0)
        self._arrivals = iter(arrivals)
        self._next = next(self._arrivals, None)
        self._max_queued_tokens = max_queued_tokens
        self._on_admitted = on_admitted
        self._articles = 0

    def runs(self, *, drain: bool = True) -> Iterator[Run]:
        """Every run as it starts, until the last article has arrived and, with `drain`, the last batch has started."""
        now_s = 0.0
        while self._next or drain:
            while self._has_room and self._next and self._next.at_s <= now_s:
                arrived_s = self._next.at_s if self._max_queued_tokens == inf else now_s
                windows = windows_of(self._next.lengths_tokens, arrived_s, self._articles)
                self._on_admitted(windows)
                self._scheduler.add(windows)
                self._articles += 1
                self._next = next(self._arrivals, None)
            while self._threads.next_free_s <= now_s:
                idle = self._engine.concurrency - self._threads.running(now_s)
                batch = self._scheduler.next_batch(now_s, idle_threads=idle, load=self._load.busy)
                if batch is None:
                    break
                run = Run(batch, now_s, now_s + self._engine.batch_s(batch))
                self._threads.start(now_s, run.end_s)
                yield run
            running = self._threads.running(now_s)
            next_s = min(self._moments(now_s), default=None)
            if next_s is None:
                return
            next_s = max(now_s, next_s)
            # Only the device is simulated, so the loop counts as waiting all the time.
            self._load.note(next_s, running=running, waited_s=next_s - now_s)
            now_s = next_s

    @property
    def _has_room(self) -> bool:
        return self._scheduler.queued_tokens < self._max_queued_tokens

    def _moments(self, now_s: float) -> Iterator[float]:
        """Times of the next possible events. Like the worker's loop, it makes a turn after each arrival and each batch."""
        if self._next and self._has_room:
            yield self._next.at_s
        end_s = self._threads.next_end_s(now_s)
        if end_s is not None and (self._scheduler.queued_tokens or self._next):
            yield end_s
        # While all threads are busy, nothing is due before one is free.
        if self._threads.next_free_s <= now_s and (due_s := self._scheduler.next_due_s()) is not None:
            yield due_s


def windows_of(lengths_tokens: Sequence[int], arrived_s: float, number: int = 0) -> list[Window]:
    """The windows of one article, of which only lengths and arrival time matter."""
    part = Part(Ticket(RawRecord(_ARTICLES, number, None, None), arrived_s))
    return [Window(part, np.zeros(length, np.int32), 0, 0, length, 0, arrived_s) for length in lengths_tokens]
