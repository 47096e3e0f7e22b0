"""The results of a simulation: tokens, runs and waits."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

import numpy as np

from enricher.worker.records import Window
from enricher.workshop.simulator import Arrival, EngineModel, Run, Scheduler, Simulation


def watch(
    scheduler: Scheduler,
    engine: EngineModel,
    arrivals: Iterable[Arrival],
    *,
    best_tokens_per_s: float,
    max_queued_tokens: float = inf,
    since_s: float = 0.0,
    drain: bool = True,
) -> Statistics:
    """Simulate, as `Simulation` says. `best_tokens_per_s`: the engine's best rate, for `own_wait_s`."""
    statistics = Statistics(engine, scheduler.max_batch_tokens, since_s, best_tokens_per_s)
    simulation = Simulation(
        scheduler, engine, arrivals, max_queued_tokens=max_queued_tokens, on_admitted=statistics.note_admitted
    )
    for run in simulation.runs(drain=drain):
        statistics.count(run)
    return statistics


@dataclass(slots=True)
class Statistics:
    """Counts batches as they start. Waits are from a window's arrival to the start of its batch."""

    engine: EngineModel
    max_batch_tokens: int
    since_s: float
    """Batches that start and articles that arrive before do not count: the average of the load begins at 0."""
    best_tokens_per_s: float
    runs: int = 0
    real_tokens: int = 0
    padded_tokens: int = 0
    computed_tokens: float = 0.0
    busy_s: float = 0.0
    ended_s: float = 0.0
    waits_s: list[float] = field(default_factory=list)
    behind_s: list[float] = field(default_factory=list)
    """Seconds that the engine needs at best for the windows before each one that waited."""
    arrived_s: list[float] = field(default_factory=list)
    """When each article arrived."""
    done_s: list[float] = field(default_factory=list)
    """When the last batch with one of its windows ended."""
    _empty_s: float = 0.0
    """When an engine at its best rate would be done with all that was admitted: a lower bound for any scheduler."""
    _behind_s: dict[Window, float] = field(default_factory=dict, compare=False)
    """The same for the windows that wait now."""

    def note_admitted(self, windows: Sequence[Window]) -> None:
        now_s = windows[0].arrived_s
        self.arrived_s.append(now_s)
        self.done_s.append(now_s)
        for window in windows:
            self._behind_s[window] = max(0.0, self._empty_s - now_s)
            self._empty_s = max(now_s, self._empty_s) + window.length_tokens / self.best_tokens_per_s

    def count(self, run: Run) -> None:
        """Count a batch that starts now."""
        behind_s = [self._behind_s.pop(window) for window in run.batch.windows]
        for window in run.batch.windows:
            number = window.ticket.raw.offset
            self.done_s[number] = max(self.done_s[number], run.end_s)
        self.ended_s = max(self.ended_s, run.end_s)
        if run.start_s < self.since_s:
            return
        self.runs += 1
        self.real_tokens += run.batch.real_tokens
        self.padded_tokens += run.batch.padded_tokens
        self.computed_tokens += self.engine.computed_tokens(run.batch)
        self.busy_s += run.end_s - run.start_s
        self.waits_s += [run.start_s - window.arrived_s for window in run.batch.windows]
        self.behind_s += behind_s

    @property
    def tokens_per_s(self) -> float:
        """Real tokens per second, from the start to the end of the last batch."""
        return self.real_tokens / self.ended_s

    @property
    def padded_per_real(self) -> float:
        return self.padded_tokens / self.real_tokens

    @property
    def computed_per_real(self) -> float:
        return self.computed_tokens / self.real_tokens

    @property
    def fill(self) -> float:
        """Mean share of the budget that a batch uses, padding included where it is computed."""
        return self.computed_tokens / self.runs / self.max_batch_tokens

    @property
    def thread_s_per_article(self) -> float:
        """Thread time that an article takes."""
        return self.busy_s / len(self._counted)

    def latency_s(self, quantile: float) -> float:
        """Quantile of the time from an article's arrival until its labels are there."""
        return float(np.quantile([self.done_s[number] - self.arrived_s[number] for number in self._counted], quantile))

    @property
    def _counted(self) -> range:
        return range(bisect_left(self.arrived_s, self.since_s), len(self.arrived_s))

    def wait_s(self, quantile: float) -> float:
        return float(np.quantile(self.waits_s, quantile))

    def own_wait_s(self, quantile: float) -> float:
        """Quantile of the wait minus the time that earlier work needs anyway: what the scheduler adds."""
        return float(np.quantile(np.subtract(self.waits_s, self.behind_s), quantile))
