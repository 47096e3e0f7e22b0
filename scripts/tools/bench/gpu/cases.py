"""Windows of random ids, of one length or with the lengths of the sample articles, and how they are batched."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle, islice
from typing import TYPE_CHECKING

import numpy as np

from enricher.codec import decode_article
from enricher.core.windowing import WindowCutter
from enricher.errors import InvalidArticle
from enricher.inference.run.model import open_model
from enricher.inference.tokenizer.articles import ArticleTokenizer
from enricher.records import Partition, RawRecord, Ticket, Window
from tools import ARTICLES
from tools.bench.model.cases import in_order_of_arrival

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

EVEN_TOKENS = 256
LONGEST_TOKENS, OVERLAP_TOKENS = 512, 64
FIRST_ID = 5
"""Smaller ids are special tokens in every supported vocabulary."""


@dataclass(frozen=True, slots=True)
class Case:
    """Windows to run. `lengths_tokens` has the length of each, special tokens included."""

    name: str
    lengths_tokens: tuple[int, ...]

    def windows(self, vocabulary: int) -> list[Window]:
        """Random ids; the seed is fixed."""
        rng = np.random.default_rng(0)
        return [_window(rng.integers(FIRST_ID, vocabulary, length, np.int32)) for length in self.lengths_tokens]


def cases(windows: int) -> list[Case]:
    """The two cases, with the same number of windows."""
    news = _news_lengths()
    order = np.random.default_rng(0).permutation(len(news))
    mixed = tuple(islice(cycle(news[index] for index in order), windows))
    return [Case(f"{EVEN_TOKENS} tokens", (EVEN_TOKENS,) * windows), Case("news mix", mixed)]


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


def padded_batches(windows: Iterable[Window], max_tokens: int) -> list[list[Window]]:
    """Sorted by length, which pads the least."""
    return in_order_of_arrival(sorted(windows, key=lambda window: window.length_tokens), max_tokens)


def _news_lengths() -> list[int]:
    """The lengths of the sample articles' windows in the built-in model's tokens, at most 512."""
    tokenizer = ArticleTokenizer(open_model(None))
    cutter = WindowCutter(LONGEST_TOKENS, OVERLAP_TOKENS, tokenizer.specials_before, tokenizer.specials_after)
    articles = [decode_article(line, max_article_chars=1_000_000) for line in ARTICLES.read_bytes().splitlines()]
    lengths: list[int] = []
    for tokens in tokenizer.tokenize(articles):
        assert not isinstance(tokens, InvalidArticle), "the samples are well-formed"
        lengths += [window.length_tokens for window in cutter.cut(_ticket(), tokens, now_s=0.0)]
    return lengths


def _ticket() -> Ticket:
    return Ticket(RawRecord(Partition("samples", 0), 0, None, None), arrived_s=0.0)


def _window(ids: np.ndarray) -> Window:
    return Window(_ticket(), ids, start=0, own_start=0, own_stop=0, specials_before=0, arrived_s=0.0)
