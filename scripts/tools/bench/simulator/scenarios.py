"""The scenarios of the batching leg: devices with their rules, backlogs, and articles at a share of capacity."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import fmean
from typing import Literal

from enricher.worker.build.loaded_model import DEFAULT_BUCKET_EDGES
from enricher.worker.records import Window
from enricher.worker.rules.batch_rules import BatchRules
from enricher.worker.rules.batching import LengthBucketScheduler
from enricher.worker.rules.packing import ArrivalScheduler
from enricher.worker.rules.passes import PassScheduler
from enricher.workshop.simulator import EngineModel, Scheduler
from tools.bench.simulator.arrivals import arriving, at_random, evenly, in_bursts, in_turn
from tools.bench.simulator.lengths import Cut
from tools.bench.simulator.orders import AsTheyCome, PlainBuckets
from tools.bench.simulator.statistics import Statistics, watch

SEED = 11
BACKLOG_BATCHES = 32
"""The worker's default: it holds this many batches' worth of tokens."""
OURS = "enricher"
BUCKETS = "plain buckets"
ORDERS: Mapping[str, Callable[[BatchRules], Scheduler]] = {
    "as they come": AsTheyCome,
    BUCKETS: PlainBuckets,
    OURS: LengthBucketScheduler,
}
Pattern = Literal["even", "random", "bursts"]
PATTERNS: tuple[Pattern, ...] = ("even", "random", "bursts")
BURST_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Setting:
    """A device, the worker's rules for it, and how much of it is simulated."""

    name: str
    model: EngineModel
    rules: BatchRules
    simulated_s: float
    backlog_tokens: int
    passes: int = 1
    """How often each article runs: with two, a worker has two tasks whose encoders differ."""

    def scheduler(self, order: str) -> Scheduler:
        made = ArrivalScheduler if self.model.packs and order == OURS else ORDERS[order]
        if self.passes == 1:
            return made(self.rules)
        return _EvenPasses([LengthBucketScheduler(self.rules) for _ in range(self.passes)])

    def articles(self, cut: Cut, articles_tokens: Sequence[int]) -> list[tuple[int, ...]]:
        """The lengths of each article's windows, for one pass after the other."""
        return [cut.lengths(tokens) * self.passes for tokens in articles_tokens]

    @property
    def bound_s(self) -> float:
        """The longest wait if the engine keeps up: the timer plus one batch."""
        return self.rules.max_wait_s + self.model.longest_batch_s(self.rules.max_batch_tokens)

    @property
    def capacity_tokens_per_s(self) -> float:
        """Rate with full batches and no padding."""
        return self.model.capacity_tokens_per_s(self.rules.max_batch_tokens)


class _EvenPasses(PassScheduler):
    """Splits the windows of an article, which come once for each pass."""

    def add(self, windows: Sequence[Window]) -> None:
        count = len(windows) // len(self._queues)
        for index, queue in enumerate(self._queues):
            queue.add(windows[index * count : (index + 1) * count])


@dataclass(frozen=True, slots=True)
class Traffic:
    """A mix of articles, how they are cut, how they arrive, and their rate as a share of the backlog rate."""

    mix: str
    cut: Cut
    pattern: Pattern
    load: float


def rules_for(max_batch_tokens: int) -> BatchRules:
    """The worker's default rules with this budget."""
    return BatchRules(DEFAULT_BUCKET_EDGES, max_batch_tokens, max_wait_s=0.05, run_overhead_tokens=16)


# Rates: the embedded model in fp32 on two CPU cores, and a projection of a large model on a large GPU. Waits scale with
# them, padding hardly does. The CUDA variant computes no padding.
CPU = Setting("CPU, 2 threads", EngineModel(2, 6_000, 16), rules_for(512), 600, 500_000)
GPU = Setting("GPU, 2 threads", EngineModel(2, 250_000, 16, 0.0), rules_for(8_192), 12, 4_000_000)
GPU_ONE = Setting("GPU, 1 thread", EngineModel(1, 500_000, 16, 0.0), rules_for(8_192), 12, 4_000_000)


def backlog(setting: Setting, cut: Cut, articles_tokens: Sequence[int], order: str) -> Statistics:
    """More articles than the worker holds; ends when the last one has been admitted."""
    articles = setting.articles(cut, articles_tokens)
    total = max(1, round(setting.backlog_tokens * setting.passes / fmean(map(sum, articles))))
    return watch(
        setting.scheduler(order),
        setting.model,
        in_turn(articles, total),
        best_tokens_per_s=setting.capacity_tokens_per_s,
        max_queued_tokens=BACKLOG_BATCHES * setting.passes * setting.rules.max_batch_tokens,
        drain=False,
    )


def under_load(
    setting: Setting,
    traffic: Traffic,
    articles_tokens: Sequence[int],
    order: str,
    *,
    capacity_tokens_per_s: float,
    since_s: float = 0.0,
) -> Statistics:
    """Random articles for `simulated_s`, until the last of them has run. `since_s`: when the statistics begin."""
    random = Random(SEED)  # noqa: S311  the same traffic every time is the point
    articles = setting.articles(traffic.cut, articles_tokens)
    per_s = traffic.load * capacity_tokens_per_s / fmean(map(sum, articles))
    arrivals = arriving(_times_s(traffic.pattern, per_s, random), articles, random, until_s=setting.simulated_s)
    scheduler = setting.scheduler(order)
    return watch(scheduler, setting.model, arrivals, best_tokens_per_s=capacity_tokens_per_s, since_s=since_s)


def _times_s(pattern: Pattern, per_s: float, random: Random) -> Iterator[float]:
    if pattern == "even":
        return evenly(per_s)
    return at_random(per_s, random) if pattern == "random" else in_bursts(per_s, BURST_EVERY_S)
