"""Ways to put the same windows into batches; the answers of a variant must not depend on them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np

from enricher.records import Window

Batches = list[list[Window]]
Batching = Callable[[Sequence[Window]], Batches]


def by_length(windows: Sequence[Window], max_tokens: int) -> Batches:
    """Windows of similar length together, up to `max_tokens` with padding, like a worker under load."""
    return _filled(sorted(windows, key=lambda window: window.length_tokens), max_tokens)


def mixed(windows: Sequence[Window], max_tokens: int) -> Batches:
    """Short and long windows together, with much padding: the worst case of a worker. Always the same mix."""
    order = np.random.default_rng(0).permutation(len(windows))
    return _filled((windows[index] for index in order), max_tokens)


def _filled(windows: Iterable[Window], max_tokens: int) -> Batches:
    batches: Batches = []
    batch: list[Window] = []
    longest = 0
    for window in windows:
        longest = max(longest, window.length_tokens)
        if batch and longest * (len(batch) + 1) > max_tokens:
            batches.append(batch)
            batch, longest = [], window.length_tokens
        batch.append(window)
    return [*batches, batch] if batch else batches


COMPOSITIONS: tuple[tuple[str, Batching], ...] = (
    ("alone", lambda windows: [[window] for window in windows]),
    ("by length, 512 tokens", partial(by_length, max_tokens=512)),
    ("by length, 4,096 tokens", partial(by_length, max_tokens=4096)),
    ("mixed lengths, 2,048 tokens", partial(mixed, max_tokens=2048)),
)
"""The others are compared with the first."""
