"""The windows of the sample articles, batched in three ways."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from enricher.worker.build.loaded_model import DEFAULT_BUCKET_EDGES
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.run.advice import default_cutter
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.records import Window
from enricher.worker.rules.batch_rules import BatchRules
from enricher.worker.rules.batching import LengthBucketScheduler
from tools import ARTICLES
from tools.cutting import windows_of
from tools.decoding import decode_article

SHORTEST_TOKENS = 8
SEED = 4
EVERY = 3
"""Only every third window is used: the same mix of lengths, in minutes."""

Batches = list[list[Window]]
Batching = Callable[[Sequence[Window], int], Batches]
"""Called with windows and the padded tokens that a batch may have."""


@dataclass(frozen=True, slots=True)
class Case:
    """Windows and their batching, the same for every leg except for the size of batches."""

    name: str
    windows: tuple[Window, ...]
    batching: Batching

    @property
    def real_tokens(self) -> int:
        return sum(window.length_tokens for window in self.windows)


def cases(checkpoint: Checkpoint) -> list[Case]:
    """Even lengths; mixed lengths in order of arrival; mixed lengths batched by the worker's scheduler."""
    windows = sample_windows(checkpoint)[::EVERY]
    mixed = _of_mixed_lengths(windows)
    return [
        Case("even", tuple(windows), by_the_scheduler),
        Case("mixed, in order of arrival", mixed, in_order_of_arrival),
        Case("mixed, batched by the worker", mixed, by_the_scheduler),
    ]


def by_the_scheduler(windows: Sequence[Window], batch_tokens: int) -> Batches:
    """The worker's own scheduler, under backlog."""
    rules = BatchRules(DEFAULT_BUCKET_EDGES, batch_tokens, max_wait_s=1.0, run_overhead_tokens=0)
    scheduler = LengthBucketScheduler(rules)
    scheduler.add(windows)
    return [list(batch.windows) for batch in iter(lambda: scheduler.next_batch(math.inf), None)]


def in_order_of_arrival(windows: Sequence[Window], batch_tokens: int) -> Batches:
    """In order, as many windows as fit when padded to the longest."""
    batches: Batches = [[]]
    for window in windows:
        longest = max([window.length_tokens, *(each.length_tokens for each in batches[-1])])
        if batches[-1] and (len(batches[-1]) + 1) * longest > batch_tokens:
            batches.append([])
        batches[-1].append(window)
    return batches


def sample_windows(checkpoint: Checkpoint) -> list[Window]:
    """All windows of the sample articles, with the worker's defaults."""
    tokenizer = ArticleTokenizer(checkpoint)
    cutter = default_cutter(checkpoint.folder, tokenizer)
    articles = [decode_article(line, max_article_chars=1_000_000) for line in ARTICLES.read_bytes().splitlines()]
    return [window for own in windows_of(tokenizer, cutter, articles) for window in own]


def _of_mixed_lengths(windows: Sequence[Window]) -> tuple[Window, ...]:
    """The same windows, cut to evenly distributed lengths, in random order; the seed is fixed."""
    random = np.random.default_rng(SEED)
    longest = max(window.length_tokens for window in windows)
    lengths = random.integers(SHORTEST_TOKENS, longest + 1, len(windows))
    cut = [replace(window, ids=window.ids[:length]) for window, length in zip(windows, lengths, strict=True)]
    return tuple(cut[index] for index in random.permutation(len(cut)))
