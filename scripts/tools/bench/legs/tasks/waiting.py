"""Padding and waits of two tasks with encoders of their own, simulated with the worker's own scheduler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean

from enricher.worker.records import Window
from enricher.worker.rules.batching import LengthBucketScheduler
from enricher.worker.rules.passes import PassScheduler
from enricher.workshop.simulator import Scheduler
from tools.bench.simulator.arrivals import arriving, at_random, in_turn
from tools.bench.simulator.report import CUT
from tools.bench.simulator.scenarios import BACKLOG_BATCHES, CPU, SEED
from tools.bench.simulator.statistics import Statistics, watched

LOADS = (0.1, 0.5, 0.9)
MIXES = ("news", "headlines")
_SIMULATED_S, _QUICK_S = 200.0, 5.0
_BACKLOG_TOKENS, _QUICK_TOKENS = 500_000, 20_000


class TwoPasses(PassScheduler):
    """The scheduler of two passes, for articles whose windows come twice: for the first pass, then for the second."""

    def add(self, windows: Sequence[Window]) -> None:
        """Queue the windows of one article."""
        half = len(windows) // 2
        self.of_pass(0).add(windows[:half])
        self.of_pass(1).add(windows[half:])


@dataclass(frozen=True, slots=True)
class Simulated:
    """One mix with one or two passes: a backlog, and loads as shares of the rate at which that backlog was done."""

    mix: str
    passes: int
    backlog: Statistics
    loads: Mapping[float, Statistics]


def simulated(mixes: Mapping[str, Sequence[int]], *, quick: bool) -> list[Simulated]:
    """One and two passes on each mix; two CPU threads, and encoders of the same speed."""
    return [_simulated(mix, mixes[mix], passes, quick=quick) for mix in MIXES for passes in (1, 2)]


def _simulated(mix: str, tokens: Sequence[int], passes: int, *, quick: bool) -> Simulated:
    windows = [CUT.lengths(each) * passes for each in tokens]
    total = max(1, round((_QUICK_TOKENS if quick else _BACKLOG_TOKENS) * passes / fmean(map(sum, windows))))
    backlog = watched(
        _scheduler(passes),
        CPU.model,
        in_turn(windows, total),
        best_tokens_per_s=CPU.capacity_tokens_per_s,
        max_queued_tokens=BACKLOG_BATCHES * passes * CPU.rules.max_batch_tokens,
        drain=False,
    )
    best, until_s = backlog.tokens_per_s, _QUICK_S if quick else _SIMULATED_S
    return Simulated(
        mix, passes, backlog, {load: _loaded(windows, passes, load * best, best, until_s) for load in LOADS}
    )


def _loaded(
    windows: Sequence[Sequence[int]], passes: int, tokens_per_s: float, best: float, until_s: float
) -> Statistics:
    random = Random(SEED)  # noqa: S311  the same traffic every time is the point
    times_s = at_random(tokens_per_s / fmean(map(sum, windows)), random)
    arrivals = arriving(times_s, windows, random, until_s=until_s)
    return watched(_scheduler(passes), CPU.model, arrivals, best_tokens_per_s=best)


def _scheduler(passes: int) -> Scheduler:
    queues = [LengthBucketScheduler(CPU.rules) for _ in range(passes)]
    return queues[0] if passes == 1 else TwoPasses(queues)
