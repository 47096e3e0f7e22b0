"""Token ids -> overlapping windows, each token owned by exactly one window.

Knows nothing of the model but its window size and special tokens. Nothing is cut here: what is longer than one window
becomes several.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np

from enricher.records import Coverage, InFlight, Int32Array, TokenizedArticle, Window


@dataclass(frozen=True, slots=True)
class Span:
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


@dataclass(frozen=True, slots=True)
class WindowCutter:
    """Cuts tokenised articles into windows for one model.

    `max_window_tokens` counts special tokens too; `before` and `after` are the special token ids around each window.
    """

    max_window_tokens: int
    overlap_tokens: int
    before: tuple[int, ...]
    after: tuple[int, ...]

    @property
    def content_tokens(self) -> int:
        """How many of a window's tokens are the article's own."""
        return self.max_window_tokens - len(self.before) - len(self.after)

    def cut(self, ticket: InFlight, tokens: TokenizedArticle, now_s: float) -> list[Window]:
        """The windows of one article; none if it has no tokens. The ticket is made ready to take their labels."""
        ids = _joined(tokens)
        spans = _plan(len(ids), self.content_tokens, self.overlap_tokens)
        ticket.tokens = tokens
        ticket.windows = ticket.windows_left = len(spans)
        specials_before = len(self.before)
        return [
            Window(ticket, window_ids, span.start, span.own_start, span.own_stop, specials_before, now_s)
            for span, window_ids in zip(spans, self._framed(ids, spans), strict=True)
        ]

    def _framed(self, ids: Int32Array, spans: Sequence[Span]) -> Iterator[Int32Array]:
        """The ids of each window with the special tokens around them, as views of one array: it is made in one call."""
        before, after = _array(self.before), _array(self.after)
        specials, stop = len(self.before) + len(self.after), 0
        pieces = [piece for span in spans for piece in (before, ids[span.start : span.stop], after)]
        framed = np.concatenate(pieces) if pieces else ids
        for span in spans:
            start, stop = stop, stop + span.stop - span.start + specials
            yield framed[start:stop]


_plan = lru_cache(maxsize=4096)(plan_windows)
"""Articles of the same length are cut alike. News has some thousand lengths; a plan takes about a kilobyte."""


@lru_cache(maxsize=8)
def _array(special_ids: tuple[int, ...]) -> Int32Array:
    return np.array(special_ids, dtype=np.int32)


def _joined(tokens: TokenizedArticle) -> Int32Array:
    ids: Sequence[Int32Array] = [part.ids for part in tokens.fields]
    return np.concatenate(ids)


def coverage_of(ticket: InFlight) -> Coverage:
    """How much of the article went through the model."""
    assert ticket.tokens is not None
    return Coverage(tokens=ticket.tokens.length_tokens, windows=ticket.windows, truncated=ticket.tokens.truncated)
