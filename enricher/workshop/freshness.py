"""Finds out whether early batches pay on a device: simulates the worker's scheduler with the device's costs. Pure.

The simulated traffic is headlines at random times: in the shortest windows the fixed cost of a run weighs most.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random

import numpy as np

from enricher.worker.inference.run.tuning import FreshnessRow
from enricher.worker.rules.batch_rules import BatchRules
from enricher.worker.rules.batching import LengthBucketScheduler
from enricher.worker.rules.packing import ArrivalScheduler
from enricher.workshop.simulator import Arrival, EngineModel, Simulation

CANDIDATES = (0.4, 0.25, 0.15, 0.08, 0.04, 0.02)
LOW, HALF = 0.1, 0.5
MOST_COST = 1.02
"""The most that a window may cost at half load, relative to its cost without early batches."""
LEAST_GAIN = 0.9
"""The latency at low load must fall at least to this share of the latency without early batches."""
_LENGTHS_TOKENS = (8, 48)
_WARM_UP_S = 3.0
"""The time before measurements count. The load is averaged over about a second."""
_WINDOWS, _SHORTEST_S, _LONGEST_S = 10_000, 2.0, 60.0
_LEAST_WINDOWS = 200
"""Fewer windows show nothing, so a slow machine is simulated for longer."""


def early_overhead(rules: BatchRules, engine: EngineModel) -> tuple[float, tuple[FreshnessRow, ...]]:
    """The recommended setting, and the simulated rows without early batches and with them.

    It is the largest share that costs at most `MOST_COST` at half load; 0 if there is none, or if it is not fresher at low
    load. Then the rows show the last share that was tried.
    """
    late = replace(rules, early_overhead=0.0)
    half = simulate(late, engine, HALF)
    for share in CANDIDATES:
        early = replace(rules, early_overhead=share)
        new_half = simulate(early, engine, HALF)
        if cheap := new_half.thread_ms <= MOST_COST * half.thread_ms:
            break
    low, new_low = simulate(late, engine, LOW), simulate(early, engine, LOW)
    fresher = new_low.p50_ms < LEAST_GAIN * low.p50_ms and new_low.p99_ms <= low.p99_ms
    return share if cheap and fresher else 0.0, (low, new_low, half, new_half)


def simulate(rules: BatchRules, engine: EngineModel, load: float) -> FreshnessRow:
    """Simulate windows that come at random times, at this share of the capacity."""
    per_s = load * engine.capacity_tokens_per_s(rules.max_batch_tokens) / (sum(_LENGTHS_TOKENS) / 2)
    measured_s = max(_LEAST_WINDOWS / per_s, min(_LONGEST_S, max(_SHORTEST_S, _WINDOWS / per_s)))
    scheduler = (ArrivalScheduler if engine.packs else LengthBucketScheduler)(rules)
    simulation = Simulation(scheduler, engine, _headlines(per_s, _WARM_UP_S + measured_s))
    counted = [run for run in simulation.runs() if run.start_s >= _WARM_UP_S]
    latencies_s = [run.end_s - window.arrived_s for run in counted for window in run.batch.windows]
    p50_s, p99_s = np.quantile(latencies_s, (0.5, 0.99))
    return FreshnessRow(
        load=load,
        early_overhead=rules.early_overhead,
        p50_ms=1000 * float(p50_s),
        p99_ms=1000 * float(p99_s),
        thread_ms=1000 * sum(run.end_s - run.start_s for run in counted) / len(latencies_s),
    )


def _headlines(per_s: float, until_s: float) -> Iterator[Arrival]:
    random = Random(1)  # noqa: S311  the same traffic every time is the point
    at_s = 0.0
    while (at_s := at_s + random.expovariate(per_s)) < until_s:
        yield Arrival(at_s, (random.randint(*_LENGTHS_TOKENS),))
