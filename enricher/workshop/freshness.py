"""Whether early batches pay on a device: the worker's own scheduler, simulated with the device's measured costs. Pure.

Traffic is headlines that come at random: in the shortest windows the fixed cost of a run weighs most.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Protocol

import numpy as np

from enricher.worker.inference.run.tuning import FreshnessRow
from enricher.worker.records import Batch, Part, Partition, RawRecord, Ticket, Window
from enricher.worker.rules.batch_rules import BatchRules
from enricher.worker.rules.batching import LengthBucketScheduler
from enricher.worker.rules.load import Load
from enricher.worker.rules.packing import ArrivalScheduler

CANDIDATES = (0.4, 0.25, 0.15, 0.08, 0.04, 0.02)
LOW, HALF = 0.1, 0.5
MOST_COST = 1.02
"""At half load, a window may cost this much of what it costs without early batches."""
LEAST_GAIN = 0.9
"""Less of a difference at low load is not worth it."""
_LENGTHS_TOKENS = (8, 48)
_SETTLES_S = 3.0
"""The time before measurements count: the average of the load is over about a second."""
_WINDOWS, _SHORTEST_S, _LONGEST_S = 10_000, 2.0, 60.0
_LEAST_WINDOWS = 200
"""Fewer say nothing, however slow the machine is and however long they take to come."""
_PART = Part(Ticket(RawRecord(Partition("", 0), 0, None, None), arrived_s=0.0))


class Scheduler(Protocol):
    """Either scheduler."""

    @property
    def queued_windows(self) -> int:
        """How many windows wait."""
        ...

    def add(self, windows: Sequence[Window]) -> None:
        """Queue windows."""

    def next_due_s(self) -> float | None:
        """When the next batch is due."""

    def next_batch(self, now_s: float, *, idle_threads: int, load: float) -> Batch | None:
        """The batch to run now."""


@dataclass(frozen=True, slots=True)
class RunCosts:
    """How long a run takes on one thread while all are busy: a fixed part, and a part for each computed token."""

    threads: int
    fixed_s: float
    token_s: float
    packs: bool
    """Without padding."""

    def run_s(self, tokens: int) -> float:
        """Seconds of one run."""
        return self.fixed_s + tokens * self.token_s

    def capacity_tokens_per_s(self, batch_tokens: int) -> float:
        """With full batches and no padding."""
        return self.threads * batch_tokens / self.run_s(batch_tokens)


def early_overhead(rules: BatchRules, costs: RunCosts) -> tuple[float, tuple[FreshnessRow, ...]]:
    """The recommended setting, and what was simulated for it: without early batches, and with them.

    The largest that costs at most `MOST_COST` at half load; 0 if there is none, or if it is not fresher at low load. Then
    the rows show the last one that was tried.
    """
    late = replace(rules, early_overhead=0.0)
    half = simulated(late, costs, HALF)
    for share in CANDIDATES:
        early = replace(rules, early_overhead=share)
        new_half = simulated(early, costs, HALF)
        if cheap := new_half.thread_ms <= MOST_COST * half.thread_ms:
            break
    low, new_low = simulated(late, costs, LOW), simulated(early, costs, LOW)
    fresher = new_low.p50_ms < LEAST_GAIN * low.p50_ms and new_low.p99_ms <= low.p99_ms
    return share if cheap and fresher else 0.0, (low, new_low, half, new_half)


def simulated(rules: BatchRules, costs: RunCosts, load: float) -> FreshnessRow:
    """Windows that come at random, at this share of the capacity."""
    per_s = load * costs.capacity_tokens_per_s(rules.max_batch_tokens) / (sum(_LENGTHS_TOKENS) / 2)
    measured_s = max(_LEAST_WINDOWS / per_s, min(_LONGEST_S, max(_SHORTEST_S, _WINDOWS / per_s)))
    until_s = _SETTLES_S + measured_s
    random = Random(1)  # noqa: S311  the same traffic every time is the point
    arrivals, at_s = list[Window](), 0.0
    while (at_s := at_s + random.expovariate(per_s)) < until_s:
        ids = np.zeros(random.randint(*_LENGTHS_TOKENS), np.int32)
        arrivals.append(Window(_PART, ids, 0, 0, len(ids), 0, at_s))
    starts = _serve(arrivals, (ArrivalScheduler if costs.packs else LengthBucketScheduler)(rules), costs)
    counted = [(start_s, end_s, batch) for start_s, end_s, batch in starts if start_s >= _SETTLES_S]
    latencies_s = [end_s - window.arrived_s for _, end_s, batch in counted for window in batch.windows]
    p50_s, p99_s = np.quantile(latencies_s, (0.5, 0.99))
    return FreshnessRow(
        load=load,
        early_overhead=rules.early_overhead,
        p50_ms=1000 * float(p50_s),
        p99_ms=1000 * float(p99_s),
        thread_ms=1000 * sum(end_s - start_s for start_s, end_s, _ in counted) / len(latencies_s),
    )


def _serve(arrivals: Sequence[Window], scheduler: Scheduler, costs: RunCosts) -> list[tuple[float, float, Batch]]:
    """Start, end and batch of every run."""
    runs, ends_s, now_s, arrived = list[tuple[float, float, Batch]](), list[float](), 0.0, 0
    average = Load(costs.threads, 0.0)
    while arrived < len(arrivals) or scheduler.queued_windows:
        while arrived < len(arrivals) and arrivals[arrived].arrived_s <= now_s:
            scheduler.add(arrivals[arrived : arrived + 1])
            arrived += 1
        while idle := costs.threads - len(ends_s):
            batch = scheduler.next_batch(now_s, idle_threads=idle, load=average.busy)
            if batch is None:
                break
            end_s = now_s + costs.run_s(batch.real_tokens if costs.packs else batch.padded_tokens)
            ends_s.append(end_s)
            runs.append((now_s, end_s, batch))
        moments_s = [*ends_s, *(window.arrived_s for window in arrivals[arrived : arrived + 1])]
        due_s = scheduler.next_due_s()
        if idle and due_s is not None:
            moments_s.append(due_s)
        if not moments_s:
            break
        next_s = min(moments_s)
        average.note(next_s, running=len(ends_s), waited_s=next_s - now_s)
        now_s = next_s
        ends_s = [end_s for end_s in ends_s if end_s > now_s]
    return runs
