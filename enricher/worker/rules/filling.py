"""Windows in a fixed order -> batches, where nothing waits and all windows are known: for the gate and for calibration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from enricher.worker.records import Window


def by_length(windows: Sequence[Window], max_tokens: int) -> list[list[Window]]:
    """Windows of similar length together, up to `max_tokens` with padding, like a worker under load."""
    return in_order(sorted(windows, key=lambda window: window.length_tokens), max_tokens)


def in_order(windows: Iterable[Window], max_tokens: int) -> list[list[Window]]:
    """Batches in the given order, each as full as `max_tokens` with padding allows, and at least one window."""
    batches: list[list[Window]] = []
    batch: list[Window] = []
    longest = 0
    for window in windows:
        longest = max(longest, window.length_tokens)
        if batch and longest * (len(batch) + 1) > max_tokens:
            batches.append(batch)
            batch, longest = [], window.length_tokens
        batch.append(window)
    return [*batches, batch] if batch else batches
