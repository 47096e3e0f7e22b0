"""Samples -> the rows that the page draws: one per sample, with a column per line of a chart; None without a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from enricher.worker.health.samples import OVER_S, Interval, Sample, interval_to, quantile
from enricher.worker.stats.histogram import LATENCIES_S

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
