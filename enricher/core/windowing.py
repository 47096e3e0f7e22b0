"""Token ids -> overlapping windows, each token owned by exactly one window.

Knows nothing of the model but its window size and special tokens. Nothing is cut here: what is longer than one window
becomes several.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from enricher.records import Coverage, InFlight, Int32Array, TokenizedArticle, Window


class Span(NamedTuple):
    """A window's content tokens `[start, stop)` and the part of them `[own_start, own_stop)` that it answers for."""

    start: int
    stop: int
    own_start: int
    own_stop: int


def plan_windows(length_tokens: int, content_tokens: int, overlap_tokens: int) -> list[Span]:
    """Cover `[0, length_tokens)` with as few windows as possible, of even size.

    Neighbours share at least `overlap_tokens`, split in the middle, so that every token is owned by the window in
    which it has most context. Even sizes (instead of full windows and a short rest) leave no window with little
    context, and more than the asked overlap costs nothing.

    Requires `0 <= overlap_tokens < content_tokens`.
    """
    assert 0 <= overlap_tokens < content_tokens
    if length_tokens <= content_tokens:
        return [Span(0, length_tokens, 0, length_tokens)] if length_tokens else []
    count = -(-(length_tokens - overlap_tokens) // (content_tokens - overlap_tokens))
    size = -(-(length_tokens + (count - 1) * overlap_tokens) // count)
    starts = [(length_tokens - size) * index // (count - 1) for index in range(count)]
    borders = [0, *((start + previous + size) // 2 for previous, start in pairwise(starts))]
    return [
        Span(start, start + size, own_start, own_stop)
        for start, own_start, own_stop in zip(starts, borders, [*borders[1:], length_tokens], strict=True)
    ]


class WindowCutter:
    """Cuts tokenised articles into windows for one model.

    `max_window_tokens` counts special tokens too; `before` and `after` are the special token ids around each window.
    """

    def __init__(
        self, max_window_tokens: int, overlap_tokens: int, before: tuple[int, ...], after: tuple[int, ...]
    ) -> None:
        self.max_window_tokens = max_window_tokens
        self.overlap_tokens = overlap_tokens
        self.content_tokens = max_window_tokens - len(before) - len(after)
        """How many of a window's tokens are the article's own."""
        self._before, self._after = np.array(before, np.int32), np.array(after, np.int32)
        self._specials_before, self._specials = len(before), len(before) + len(after)

    def cut(self, ticket: InFlight, tokens: TokenizedArticle, now_s: float) -> list[Window]:
        """The windows of one article; none if it has no tokens. The ticket is made ready to take their labels."""
        framed = np.concatenate((self._before, *[part.ids for part in tokens.fields], self._after))
        length, specials_before = len(framed) - self._specials, self._specials_before
        ticket.tokens = tokens
        if 0 < length <= self.content_tokens:
            ticket.windows = ticket.windows_left = 1
            return [Window(ticket, framed, 0, 0, length, specials_before, now_s)]
        spans = _plan(length, self.content_tokens, self.overlap_tokens)
        ticket.windows = ticket.windows_left = len(spans)
        return [
            Window(ticket, ids, start, own_start, own_stop, specials_before, now_s)
            for ids, (start, _, own_start, own_stop) in zip(self._each_framed(framed, spans), spans, strict=True)
        ]

    def _each_framed(self, framed: Int32Array, spans: Sequence[Span]) -> Int32Array:
        """`int32 [windows, length]`, all as long as one another: the special tokens stand where the neighbours' began."""
        if not spans:
            return framed[:0]
        ids = np.concatenate([framed[start : stop + self._specials] for start, stop, _, _ in spans])
        windows = ids.reshape(len(spans), -1)
        windows[:, : self._specials_before] = self._before
        windows[:, windows.shape[1] - len(self._after) :] = self._after
        return windows


_plan = lru_cache(maxsize=4096)(plan_windows)
"""Articles of the same length are cut alike. News has some thousand lengths; a plan takes about a kilobyte."""


def coverage_of(ticket: InFlight) -> Coverage:
    """How much of the article went through the model."""
    assert ticket.tokens is not None
    return Coverage(tokens=ticket.tokens.length_tokens, windows=ticket.windows, truncated=ticket.tokens.truncated)
