"""The last 15 minutes of a worker, one sample every two seconds, so that the page can draw full charts at once.

Samples hold counts; rates and quantiles are differences between two samples, and so are the rows that the page draws. One
thread adds samples; other threads get copies.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from enricher.worker.stats import LATENCIES_S, Counters, Histogram, Snapshot

EVERY_S = 2.0
KEPT_S = 900.0
OVER_S = 60.0
"""The period of current figures and of each latency point: a shorter period is noisy, a longer one hides changes."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The worker at `at_s` (monotonic clock). Counts are since the start."""

    at_s: float
    epoch_s: float
    published: int
    windows: int
    batches: int
    real_tokens: int
    padded_tokens: int
    fill_sum: float
    latency: tuple[int, ...]
    wait: tuple[int, ...]
    transaction: tuple[int, ...]
    engine_busy_s: float
    engine_starved_s: float
    concurrency: int
    oldest_age_s: float
    lag: int | None
    """Total lag; see `lag_of`."""
    in_flight: int
    held_back: int


def take_sample(counters: Counters, snapshot: Snapshot, at_s: float, epoch_s: float) -> Sample:
    """Take a sample of the worker now."""
    return Sample(
        at_s=at_s,
        epoch_s=epoch_s,
        published=counters.published,
        windows=counters.windows,
        batches=counters.batches,
        real_tokens=counters.real_tokens,
        padded_tokens=counters.padded_tokens,
        fill_sum=counters.batch_fill.sum,
        latency=tuple(counters.latency_s.counts),
        wait=tuple(counters.batch_wait_s.counts),
        transaction=tuple(counters.transaction_s.counts),
        engine_busy_s=snapshot.engine_busy_s,
        engine_starved_s=snapshot.engine_starved_s,
        concurrency=snapshot.concurrency,
        oldest_age_s=snapshot.oldest_age_s,
        lag=lag_of(snapshot),
        in_flight=snapshot.in_flight_articles,
        held_back=snapshot.held_back_articles,
    )


def lag_of(snapshot: Snapshot) -> int | None:
    """Total lag over the assigned partitions; 0 if none are assigned, None if unknown."""
    lags = snapshot.lags
    return sum(lags.values()) if lags or not snapshot.partitions else None


def ratio(part: float, whole: float) -> float | None:
    """`part / whole`, or None if there is nothing to divide by."""
    return part / whole if whole > 0 else None


def quantile(bounds: Sequence[float], before: Sequence[int], now: Sequence[int], share: float) -> float | None:
    """Quantile of the values counted between two samples, given their bucket counts."""
    # The counters are read while they change, so a single difference may be negative by one.
    between = [max(0, late - early) for early, late in zip(before, now, strict=True)]
    return Histogram(bounds, between).quantile(share)


@dataclass(frozen=True, slots=True)
class Interval:
    """The difference between two samples."""

    before: Sample
    now: Sample

    @property
    def seconds(self) -> float:
        """Length of the interval."""
        return self.now.at_s - self.before.at_s

    def rate(self, name: str) -> float:
        """Increase of the count `name` per second."""
        return max(0.0, self.difference(name) / self.seconds) if self.seconds > 0 else 0.0

    def difference(self, name: str) -> float:
        """Increase of the count `name`."""
        return float(getattr(self.now, name) - getattr(self.before, name))

    def padding_share(self) -> float | None:
        """Padding as a share of the computed tokens."""
        padding = self.difference("padded_tokens") - self.difference("real_tokens")
        return ratio(padding, self.difference("padded_tokens"))

    def fill(self) -> float | None:
        """Mean fill of the batches, 0 to 1."""
        return ratio(self.difference("fill_sum"), self.difference("batches"))

    def thread_share(self, name: str) -> float | None:
        """The seconds counted in `name` as a share of the threads' time, at most 1."""
        # A run is counted when it ends, so a short interval may count more time than it has.
        share = ratio(self.difference(name), self.seconds * self.now.concurrency)
        return share and min(1.0, share)


def interval_to(samples: Sequence[Sample], now: Sample, over_s: float) -> Interval:
    """The interval from the first sample of the last `over_s` seconds to `now`, which need not be one of `samples`."""
    first = bisect_left(samples, now.at_s - over_s, key=lambda sample: sample.at_s)
    return Interval(samples[first] if first < len(samples) else now, now)


COLUMNS = (
    "at",
    "articles_per_s",
    "tokens_per_s",
    "padding_share",
    "fill",
    "busy_share",
    "starved_share",
    "latency_p50_s",
    "latency_p99_s",
    "oldest_age_s",
    "lag",
    "in_flight",
    "held_back",
)
"""The columns. `at` is Unix time; latencies cover the minute before it."""


def rows(samples: Sequence[Sample], since: float = 0.0) -> list[list[Any]]:
    """The rows of the samples after `since` (Unix time). The first sample has no row, because rates need two samples."""
    return [
        _row(samples, number)
        for number in range(1, len(samples))
        if samples[number].epoch_s > since + 1e-3  # times are rounded in the rows
    ]


def _row(samples: Sequence[Sample], number: int) -> list[Any]:
    now = samples[number]
    step, minute = Interval(samples[number - 1], now), interval_to(samples, now, OVER_S)
    return [
        round(now.epoch_s, 3),
        _short(step.rate("published")),
        _short(step.rate("padded_tokens")),
        _short(step.padding_share()),
        _short(step.fill()),
        _short(step.thread_share("engine_busy_s")),
        _short(step.thread_share("engine_starved_s")),
        _short(quantile(LATENCIES_S, minute.before.latency, now.latency, 0.5)),
        _short(quantile(LATENCIES_S, minute.before.latency, now.latency, 0.99)),
        _short(now.oldest_age_s),
        now.lag,
        now.in_flight,
        now.held_back,
    ]


def _short(value: float | None) -> float | None:
    """Round to four digits, more than a chart shows."""
    return None if value is None else float(f"{value:.4g}")
