"""Token ids -> overlapping windows; each token is owned by exactly one window.

Knows only the model's window size and special tokens. Nothing is truncated here: a long article gets several windows.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np

from enricher.worker.records import Coverage, Int32Array, Ticket, TokenizedArticle, Window

LENGTH_STEP_TOKENS = 16
"""Some devices run fastest on multiples of this length, which cost an article with several windows nothing."""


class Span(NamedTuple):
    """A window's content tokens `[start, stop)`, and the part that it owns, `[own_start, own_stop)`."""

    start: int
    stop: int
    own_start: int
    own_stop: int


def plan_windows(length_tokens: int, content_tokens: int, overlap_tokens: int, special_tokens: int) -> list[Span]:
    """Cover `[0, length_tokens)` with as few windows as possible, of nearly equal size.

    Neighbours share at least `overlap_tokens`, split in the middle, so that every token is owned by the window in which it
    has most context. Equal sizes, instead of full windows and a short rest, leave no window with little context.

    Each window has `special_tokens` more. If full windows are a multiple of `LENGTH_STEP_TOKENS`, all are, and they differ
    by at most one such step, longer ones first: neighbours share tokens that a device would pad (4 % of news in bf16).

    Requires `0 <= overlap_tokens < content_tokens`.
    """
    assert 0 <= overlap_tokens < content_tokens
    if length_tokens <= content_tokens:
        return [Span(0, length_tokens, 0, length_tokens)] if length_tokens else []
    count = -(-(length_tokens - overlap_tokens) // (content_tokens - overlap_tokens))
    sizes = _sizes(length_tokens + (count - 1) * overlap_tokens, count, content_tokens, overlap_tokens, special_tokens)
    shared = sum(sizes) - length_tokens
    ends = accumulate(sizes)
    stops = [end - shared * index // (count - 1) for index, end in enumerate(ends)]
    starts = [stop - size for stop, size in zip(stops, sizes, strict=True)]
    bounds = [0, *((stop + start) // 2 for stop, start in zip(stops, starts[1:], strict=False)), length_tokens]
    return [Span(start, stop, *own) for start, stop, own in zip(starts, stops, pairwise(bounds), strict=True)]


def _sizes(total_tokens: int, count: int, content_tokens: int, overlap_tokens: int, special_tokens: int) -> list[int]:
    """The sizes of `count` windows that hold `total_tokens` content tokens together, or a few more."""
    full = content_tokens + special_tokens
    units, longer = divmod(-(-(total_tokens + count * special_tokens) // LENGTH_STEP_TOKENS), count)
    size = units * LENGTH_STEP_TOKENS - special_tokens
    # Otherwise a window could overlap the one after the next: of three or more, neighbours share up to half a step more.
    if full % LENGTH_STEP_TOKENS == 0 and (count == 2 or size >= 2 * overlap_tokens + LENGTH_STEP_TOKENS):
        return [size + LENGTH_STEP_TOKENS] * longer + [size] * (count - longer)
    return [-(-total_tokens // count)] * count


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
        """The largest number of article tokens in a window."""
        self._before, self._after = np.array(before, np.int32), np.array(after, np.int32)
        self._specials_before, self._specials = len(before), len(before) + len(after)

    def cut(self, ticket: Ticket, tokens: TokenizedArticle, now_s: float) -> list[Window]:
        """The windows of one article; none if it has no tokens. Prepares the ticket for the answers about them."""
        framed = np.concatenate((self._before, *[each.ids for each in tokens.fields], self._after))
        length, specials_before = len(framed) - self._specials, self._specials_before
        ticket.tokens = tokens
        if 0 < length <= self.content_tokens:
            ticket.windows = ticket.windows_left = 1
            return [Window(ticket, framed, 0, 0, length, specials_before, now_s)]
        spans = _plan(length, self.content_tokens, self.overlap_tokens, self._specials)
        ticket.windows = ticket.windows_left = len(spans)
        return [
            Window(ticket, ids, start, own_start, own_stop, specials_before, now_s)
            for ids, (start, _, own_start, own_stop) in zip(self._each_framed(framed, spans), spans, strict=True)
        ]

    def _each_framed(self, framed: Int32Array, spans: Sequence[Span]) -> list[Int32Array]:
        """The ids of each window, `int32 [length]`, special tokens included."""
        if not spans:
            return []
        ids = np.concatenate([framed[start : stop + self._specials] for start, stop, _, _ in spans])
        longer, shorter = (span.stop - span.start + self._specials for span in (spans[0], spans[-1]))
        # The tokens beyond `len(spans)` short windows are the surplus of the longer ones.
        end_of_longer = (len(ids) - len(spans) * shorter) // (longer - shorter or 1) * longer
        return [*self._frame(ids[:end_of_longer], longer), *self._frame(ids[end_of_longer:], shorter)]

    def _frame(self, ids: Int32Array, length_tokens: int) -> Int32Array:
        """`int32 [windows, length_tokens]`: consecutive windows with their special tokens."""
        windows = ids.reshape(-1, length_tokens)
        windows[:, : self._specials_before] = self._before
        windows[:, length_tokens - len(self._after) :] = self._after
        return windows


_plan = lru_cache(maxsize=4096)(plan_windows)
"""Articles of the same length have the same plan. News has some thousand lengths; a plan takes about a kilobyte."""


def coverage_of(ticket: Ticket) -> Coverage:
    """How much of the article went through the model: nothing, if it was not tokenised because no task is for it."""
    if ticket.tokens is None:
        return Coverage(tokens=0, windows=0, truncated=False)
    return Coverage(tokens=ticket.tokens.length_tokens, windows=ticket.windows, truncated=ticket.tokens.truncated)
