"""Windows into batches: as others pad them, and packed as ours. Needs no Kafka and runs nothing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from enricher.worker.records import Window

Batches = list[list[Window]]


def in_order_of_arrival(windows: Sequence[Window], batch_tokens: int) -> Batches:
    """In order, as many windows as fit when padded to the longest."""
    batches: Batches = [[]]
    for window in windows:
        longest = max([window.length_tokens, *(each.length_tokens for each in batches[-1])])
        if batches[-1] and (len(batches[-1]) + 1) * longest > batch_tokens:
            batches.append([])
        batches[-1].append(window)
    return batches


def packed_batches(windows: Sequence[Window], max_tokens: int) -> Batches:
    """In order, as many windows as fit into `max_tokens`: packed batches gain nothing from similar lengths."""
    batches: Batches = [[]]
    left = max_tokens
    for window in windows:
        if window.length_tokens > left and batches[-1]:
            batches.append([])
            left = max_tokens
        batches[-1].append(window)
        left -= window.length_tokens
    return batches


def pad(windows: Sequence[Window], pad_id: int, *, step_tokens: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Ids and mask, `int64 [windows, length]`: the longest window's length, rounded up to whole steps."""
    lengths = np.array([window.length_tokens for window in windows])
    longest = -(-int(lengths.max()) // step_tokens) * step_tokens
    mask = (np.arange(longest) < lengths[:, None]).astype(np.int64)
    ids = np.full(mask.shape, pad_id, np.int64)
    for row, window in zip(ids, windows, strict=True):
        row[: window.length_tokens] = window.ids
    return ids, mask
