"""Articles that wait for the tokenizer, and how much work and memory each is."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from enricher.worker.records import Article, Part, RawRecord, Ticket

_ARTICLE_CHARS = 64
"""The fixed cost of an article, in characters of text: even an empty one is some work."""


class Waiting:
    """Parts of decoded tickets in the order of arrival. `chars_per_call`: how much text one call of the tokenizer gets."""

    def __init__(self, chars_per_call: int) -> None:
        self._chars_per_call = chars_per_call
        self._parts: deque[Part] = deque()
        self.chars = 0
        """The work that waits."""

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, parts: Sequence[Part], *, first: bool = False) -> None:
        """Queue parts in this order, behind or before all others."""
        if first:
            self._parts.extendleft(reversed(parts))
        else:
            self._parts.extend(parts)
        self.chars += sum(map(_chars, parts))

    def next_call(self) -> list[Part]:
        """Remove and return the parts of the next call; one with more text than a call gets has a call for itself."""
        parts = [self._parts.popleft()]
        chars = _chars(parts[0])
        while self._parts and chars + _chars(self._parts[0]) <= self._chars_per_call:
            parts.append(self._parts.popleft())
            chars += _chars(parts[-1])
        self.chars -= chars
        return parts

    def drop_forgotten(self) -> None:
        """Drop parts of forgotten tickets."""
        self._parts = deque(part for part in self._parts if part.live)
        self.chars = sum(map(_chars, self._parts))


def _chars(part: Part) -> int:
    return text_chars(part.ticket)


def value_bytes(ticket: Ticket) -> int:
    """The work of decoding a record, in bytes."""
    return _ARTICLE_CHARS + len(ticket.raw.value or b"")


def text_chars(ticket: Ticket) -> int:
    """The work of tokenising a decoded article, in characters."""
    assert ticket.article is not None
    return _ARTICLE_CHARS + ticket.article.length_chars


def beyond_the_record(article: Article, raw: RawRecord) -> int:
    """Memory of an article beyond its record, where text counts a byte per character. 0 for plain JSON without metadata."""
    value, document = raw.value or b"", article.document
    kept_bytes = 0 if document is None or document is value else len(document)
    kept_bytes += len(article.further or b"")
    if article.source_map is not None:
        kept_bytes += article.source_map.size_bytes
    return kept_bytes + max(0, article.length_chars - len(value))
