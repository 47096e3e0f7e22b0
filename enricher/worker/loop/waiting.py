"""Articles that wait for the tokenizer, and how much work and memory each is."""

from __future__ import annotations

from collections import deque

from enricher.worker.records import Article, RawRecord, Ticket

_ARTICLE_CHARS = 64
"""The fixed cost of an article, in characters of text: even an empty one is some work."""


class Waiting:
    """Decoded tickets in the order of arrival. `chars_per_call`: how much text one call of the tokenizer gets."""

    def __init__(self, chars_per_call: int) -> None:
        self._chars_per_call = chars_per_call
        self._tickets: deque[Ticket] = deque()
        self.chars = 0
        """The work that waits."""

    def __bool__(self) -> bool:
        return bool(self._tickets)

    def add(self, ticket: Ticket) -> None:
        """Queue a ticket behind all others."""
        self._tickets.append(ticket)
        self.chars += text_chars(ticket)

    def next_call(self) -> list[Ticket]:
        """Remove and return the tickets of the next call; one with more text than a call gets has a call for itself."""
        tickets = [self._tickets.popleft()]
        chars = text_chars(tickets[0])
        while self._tickets and chars + text_chars(self._tickets[0]) <= self._chars_per_call:
            tickets.append(self._tickets.popleft())
            chars += text_chars(tickets[-1])
        self.chars -= chars
        return tickets

    def drop_forgotten(self) -> None:
        """Drop forgotten tickets."""
        self._tickets = deque(ticket for ticket in self._tickets if ticket.live)
        self.chars = sum(map(text_chars, self._tickets))


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
