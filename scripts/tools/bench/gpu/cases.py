"""Windows of random ids, of one length or with the lengths of news, and how they are batched."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from enricher.worker.inference.run.advice import cutter_for
from enricher.worker.inference.run.model import open_model
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.records import Partition, RawRecord, Ticket, Window
from tools import ARTICLES
from tools.cutting import windows_of
from tools.decoding import decode_article

if TYPE_CHECKING:
    from collections.abc import Sequence

WINDOW_TOKENS, OVERLAP_TOKENS = 256, 64
HEADLINES = 0.6
"""The share of a stream's articles that are only a headline."""
HEADLINE_TOKENS = range(12, 41)
FIRST_ID = 5
"""Smaller ids are special tokens in every supported vocabulary."""
TICKET = Ticket(RawRecord(Partition("samples", 0), 0, None, None), arrived_s=0.0)


@dataclass(frozen=True, slots=True)
class Case:
    """Windows in the order in which they are batched. `lengths_tokens` includes special tokens."""

    name: str
    lengths_tokens: tuple[int, ...]

    def windows(self, vocabulary: int) -> list[Window]:
        """Random ids; the seed is fixed."""
        rng = np.random.default_rng(0)
        return [window_of(rng.integers(FIRST_ID, vocabulary, length, np.int32)) for length in self.lengths_tokens]


def even(windows: int) -> Case:
    """All of one length."""
    return Case(f"{WINDOW_TOKENS} each", (WINDOW_TOKENS,) * windows)


def news(windows: int) -> list[Case]:
    """Headlines and the sample articles' windows: by arrival, which pads a rival's batches, and sorted, which pads least."""
    rng, articles, lengths = np.random.default_rng(1), _article_lengths(), list[int]()
    while len(lengths) < windows:
        if rng.random() < HEADLINES:
            lengths.append(int(rng.choice(HEADLINE_TOKENS)))
        else:
            lengths += articles[rng.integers(len(articles))]
    arrived = tuple(lengths[:windows])
    return [Case("news, by arrival", arrived), Case("news, sorted", tuple(sorted(arrived)))]


def packed_batches(windows: Sequence[Window], max_tokens: int) -> list[list[Window]]:
    """In order, as many windows as fit into `max_tokens`: packed batches gain nothing from similar lengths."""
    batches: list[list[Window]] = [[]]
    left = max_tokens
    for window in windows:
        if window.length_tokens > left and batches[-1]:
            batches.append([])
            left = max_tokens
        batches[-1].append(window)
        left -= window.length_tokens
    return batches


def window_of(ids: np.ndarray) -> Window:
    """A window of no article."""
    ids = ids.astype(np.int32)
    return Window(TICKET, ids, start=0, own_start=0, own_stop=0, specials_before=0, arrived_s=0.0)


@cache
def _article_lengths() -> list[list[int]]:
    """The windows' lengths of each sample article, in the built-in model's tokens."""
    tokenizer = ArticleTokenizer(open_model(None))
    cutter = cutter_for(tokenizer, WINDOW_TOKENS, OVERLAP_TOKENS)
    articles = [decode_article(line, max_article_chars=1_000_000) for line in ARTICLES.read_bytes().splitlines()]
    return [[window.length_tokens for window in own] for own in windows_of(tokenizer, cutter, articles)]
