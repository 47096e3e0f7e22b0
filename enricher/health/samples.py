"""The last quarter of an hour of a worker: one look every two seconds, so that the page's charts are full at once.

Looks are kept as counts; a rate or a quantile is what lies between two of them. Bounded, and of one thread: others get
copies of what it has.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from enricher.stats.counters import Counters
from enricher.stats.histogram import Histogram
from enricher.stats.snapshot import Snapshot

EVERY_S = 2.0
KEPT_S = 900.0
OVER_S = 60.0
"""What "now" means in figures and in each point of the latency: shorter would jump, longer would hide."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One look, at `at_s` by a monotonic clock; counts are since the start."""

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
    """Of all our partitions; None while the client has not told of any."""
    in_flight: int
    held_back: int
    queued_tokens: int


def look(counters: Counters, snapshot: Snapshot, at_s: float, epoch_s: float) -> Sample:
    """A worker as it is now."""
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
        queued_tokens=snapshot.queued_tokens,
    )


def lag_of(snapshot: Snapshot) -> int | None:
    """Of all our partitions together: of none it is 0, and None while nothing is known of those that there are."""
    lags = snapshot.lags
    return sum(lags.values()) if lags or not snapshot.partitions else None


def ratio(part: float, whole: float) -> float | None:
    """A share, or None of nothing."""
    return part / whole if whole > 0 else None


def quantile(bounds: Sequence[float], before: Sequence[int], now: Sequence[int], share: float) -> float | None:
    """Of the values that were counted between two looks."""
    # A count may be one behind its neighbour, so that a difference is never quite taken at one instant.
    between = [max(0, late - early) for early, late in zip(before, now, strict=True)]
    return Histogram(bounds, between).quantile(share)


@dataclass(frozen=True, slots=True)
class Span:
    """What happened between two looks."""

    before: Sample
    now: Sample

    @property
    def seconds(self) -> float:
        """Between them."""
        return self.now.at_s - self.before.at_s

    def rate(self, name: str) -> float:
        """Of a count, per second."""
        difference: float = getattr(self.now, name) - getattr(self.before, name)
        return max(0.0, difference / self.seconds) if self.seconds > 0 else 0.0

    def difference(self, name: str) -> float:
        """Of a count."""
        return float(getattr(self.now, name) - getattr(self.before, name))

    def padding_share(self) -> float | None:
        """Of what was computed."""
        padding = self.difference("padded_tokens") - self.difference("real_tokens")
        return ratio(padding, self.difference("padded_tokens"))

    def fill(self) -> float | None:
        """How full batches were, 0 to 1."""
        return ratio(self.difference("fill_sum"), self.difference("batches"))

    def thread_share(self, name: str) -> float | None:
        """Of the threads' time, for what is counted in seconds. A run counts when it ends: a short span may hold more."""
        share = ratio(self.difference(name), self.seconds * self.now.concurrency)
        return share and min(1.0, share)


class History:
    """The looks of the last `KEPT_S`."""

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=int(KEPT_S / EVERY_S) + 1)

    def add(self, sample: Sample) -> None:
        """One more; the oldest goes."""
        self._samples.append(sample)

    def samples(self) -> Sequence[Sample]:
        """All, oldest first."""
        return tuple(self._samples)

    def span(self, now: Sample, over_s: float = OVER_S) -> Span:
        """From `over_s` ago, or from the first look, to `now`."""
        return span_to(self.samples(), now, over_s)


def span_to(samples: Sequence[Sample], now: Sample, over_s: float) -> Span:
    """From the first look that is not older than `over_s` to `now`, which need not be one of them."""
    first = bisect_left(samples, now.at_s - over_s, key=lambda sample: sample.at_s)
    return Span(samples[first] if first < len(samples) else now, now)
