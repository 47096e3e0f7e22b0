"""Results of a simulation: tokens, runs and waits."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np

from enricher.worker.records import Batch


@dataclass(slots=True)
class Statistics:
    """Counts batches as they start. Waits are from a window's arrival to the start of its batch."""

    max_batch_tokens: int
    since_s: float = 0.0
    """Batches that start and articles that arrive before do not count: averages of the load settle first."""
    runs: int = 0
    real_tokens: int = 0
    padded_tokens: int = 0
    computed_tokens: float = 0.0
    busy_s: float = 0.0
    ended_s: float = 0.0
    waits_s: list[float] = field(default_factory=list)
    behind_s: list[float] = field(default_factory=list)
    """For each of `waits_s`: how long the engine needs at best for the windows that came before."""
    arrived_s: list[float] = field(default_factory=list)
    """When each article arrived."""
    done_s: list[float] = field(default_factory=list)
    """When the last batch with one of its windows ended."""

    def arrived(self, at_s: float) -> int:
        """Note an article; returns its number."""
        self.arrived_s.append(at_s)
        self.done_s.append(at_s)
        return len(self.arrived_s) - 1

    def ended(self, articles: Iterable[int], end_s: float) -> None:
        """Note when a batch with windows of these articles ends."""
        for article in articles:
            self.done_s[article] = max(self.done_s[article], end_s)

    def count(self, batch: Batch, behind_s: list[float], *, computed_tokens: float, now_s: float, end_s: float) -> None:
        """Count a batch that starts now."""
        self.ended_s = max(self.ended_s, end_s)
        if now_s < self.since_s:
            return
        self.runs += 1
        self.real_tokens += batch.real_tokens
        self.padded_tokens += batch.padded_tokens
        self.computed_tokens += computed_tokens
        self.busy_s += end_s - now_s
        self.waits_s += [now_s - window.arrived_s for window in batch.windows]
        self.behind_s += behind_s

    @property
    def tokens_per_s(self) -> float:
        """Real tokens per second, from the start to the end of the last batch."""
        return self.real_tokens / self.ended_s

    @property
    def padded_per_real(self) -> float:
        """Padded tokens per real token."""
        return self.padded_tokens / self.real_tokens

    @property
    def computed_per_real(self) -> float:
        """Computed tokens per real token."""
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
        """Quantile of the waits."""
        return float(np.quantile(self.waits_s, quantile))

    def own_wait_s(self, quantile: float) -> float:
        """Quantile of the wait minus the time that earlier work needs anyway: what the scheduler adds."""
        return float(np.quantile(np.subtract(self.waits_s, self.behind_s), quantile))
