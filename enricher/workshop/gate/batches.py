"""Several ways to put the same windows into batches. The answers of a variant must not depend on the way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from enricher.worker.records import Window
from enricher.worker.rules.batching import by_length, in_order

Batches = list[list[Window]]
Batching = Callable[[Sequence[Window]], Batches]


def mix_lengths(windows: Sequence[Window], max_tokens: int) -> Batches:
    """Short and long windows together, always in the same order. Much padding makes this the worst case of a worker."""
    order = np.random.default_rng(0).permutation(len(windows))
    return in_order((windows[index] for index in order), max_tokens)


COMPOSITIONS: tuple[tuple[str, Batching], ...] = (
    ("alone", lambda windows: [[window] for window in windows]),
    ("by length, 512 tokens", partial(by_length, max_tokens=512)),
    ("by length, 4,096 tokens", partial(by_length, max_tokens=4096)),
    ("mixed lengths, 2,048 tokens", partial(mix_lengths, max_tokens=2048)),
)
"""Names and ways. The others are compared with the first."""
USUAL = 1
"""The index of the way that F1 is measured with, which is the nearest to a worker's."""
