"""Decodes and tokenises articles and cuts them into windows. Records that cannot be enriched become dead letters here."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import ceil

from enricher.core.assembly import finish_enriched
from enricher.core.decoding import LabelScheme
from enricher.core.long_articles import LongArticles
from enricher.core.windowing import WindowCutter
from enricher.errors import InvalidArticle
from enricher.records import Article, DeadLetter, RawRecord, Ticket, TokenizedArticle, Tombstone, Unreadable
from enricher.worker.pool import WorkerPool
from enricher.worker.ports import Scheduler, Tokenized

_ARTICLE_CHARS = 64
"""The fixed cost of an article, in characters of text: even an empty one is some work."""
_AVERAGED_ARTICLES = 32
"""`capacity` is estimated from about so many recent articles."""
_LONG_BATCHES = 8
"""How many batches' worth of windows of one long article the scheduler holds: enough to keep the device busy alone."""
_DECODED_BYTES = 1_000_000
"""One turn of the loop decodes values up to the first that exceeds this sum: hostile JSON takes 0.15 s per megabyte."""


@dataclass(slots=True)
class Intake:
    """Takes tickets from arrival to the scheduler. Owns the tokenizer pool.

    `chars_per_call`: how much text one call of the tokenizer gets, so that all calls take about as long; a longer article
    gets a call for itself.
    """

    decode: Callable[[bytes], Article]
    tokenizer: WorkerPool[list[Ticket], Tokenized]
    cutter: WindowCutter
    scheduler: Scheduler
    scheme: LabelScheme
    chars_per_call: int
    _tokenizer_moved_s: float = 0.0
    """When the tokenizer last returned a result, or was last idle."""
    _long: LongArticles = field(default_factory=LongArticles)
    _undecoded: deque[Ticket] = field(default_factory=deque)
    _undecoded_bytes: int = 0
    _waiting: deque[Ticket] = field(default_factory=deque)
    _waiting_chars: int = 0
    _usual_chars: float = 1_000.0
    """Moving average of an article's length; for a refused record, its bytes."""

    @property
    def capacity(self) -> int:
        """How many more records can be taken, assuming that they are as long as recent ones."""
        free_chars = self.tokenizer.capacity * self.chars_per_call - self._waiting_chars - self._undecoded_bytes
        return max(0, ceil(free_chars / self._usual_chars))

    @property
    def busy(self) -> bool:
        """True while tickets are here or with the tokenizer."""
        return bool(self._undecoded or self._waiting or self._long or self.tokenizer.busy)

    def tokenizer_waits_s(self, now_s: float) -> float:
        """Seconds since the tokenizer last returned a result, while it has work; else 0."""
        return now_s - self._tokenizer_moved_s if self.tokenizer.busy else 0.0

    def close(self) -> None:
        """Close the tokenizer pool. Blocks within its bound."""
        self.tokenizer.close()

    def take(self, tickets: Iterable[Ticket]) -> None:
        """Queue new tickets. A record without a value is a tombstone and is finished at once."""
        for ticket in tickets:
            if ticket.raw.unreadable is not None:
                ticket.finish(_unread(ticket.raw.unreadable))
            elif ticket.raw.value is None:
                ticket.finish(Tombstone())
            elif self._long.is_long(ticket.raw):
                self._long.wait(ticket)
            else:
                self._undecoded.append(ticket)
                self._undecoded_bytes += _value_bytes(ticket)

    def advance(self, now_s: float) -> bool:
        """Decode records, submit articles to the tokenizer, queue the windows of its results; True if anything moved.

        Decodes at most what one turn of the loop has time for, however much one poll returned.
        """
        moved = self._decode_some()
        if not self.tokenizer.busy:
            self._tokenizer_moved_s = now_s
        while self._waiting and self.tokenizer.capacity:
            self.tokenizer.submit(self._next_call())
            moved = True
        for ticket, tokens in (pair for chunk in self.tokenizer.completed() for pair in chunk):
            moved = True
            self._tokenizer_moved_s = now_s
            if ticket.live:
                self._queue(ticket, tokens, now_s)
        moved |= self._begin_long()  # after results were taken back: other articles may use all capacity at once
        at_once = _LONG_BATCHES * self.scheduler.max_batch_tokens // self.cutter.max_window_tokens
        if windows := self._long.due(now_s, max(1, at_once)):
            self.scheduler.add(windows)
            moved = True
        return moved

    def drop_forgotten(self) -> None:
        """Drop forgotten tickets and their windows."""
        self._long.drop_forgotten()
        self._undecoded = deque(ticket for ticket in self._undecoded if ticket.live)
        self._undecoded_bytes = sum(map(_value_bytes, self._undecoded))
        self._waiting = deque(ticket for ticket in self._waiting if ticket.live)
        self._waiting_chars = sum(map(_chars, self._waiting))
        self.scheduler.drop_forgotten()

    def _begin_long(self) -> bool:
        """Submit the next long article to the tokenizer, if it may begin; True if there was one."""
        if not self.tokenizer.capacity or not (ticket := self._long.next()):
            return False
        if self._decoded(ticket):
            self._long.begin(ticket)
            self.tokenizer.submit([ticket])
        return True

    def _decode_some(self) -> bool:
        """Decode in the order of arrival, within `_DECODED_BYTES`; True if there was anything."""
        decoded_bytes, waiting = 0, bool(self._undecoded)
        while self._undecoded and decoded_bytes < _DECODED_BYTES:
            ticket = self._undecoded.popleft()
            decoded_bytes += _value_bytes(ticket)
            if self._decoded(ticket):
                self._waiting.append(ticket)
                self._waiting_chars += _chars(ticket)
            chars = _chars(ticket) if ticket.article else _value_bytes(ticket)
            self._usual_chars += (chars - self._usual_chars) / _AVERAGED_ARTICLES
        self._undecoded_bytes -= decoded_bytes
        return waiting

    def _decoded(self, ticket: Ticket) -> bool:
        assert ticket.raw.value is not None
        try:
            _check_headers(ticket.raw)
            ticket.article = self.decode(ticket.raw.value)
        except InvalidArticle as error:
            _refuse(ticket, error)
            return False
        return True

    def _next_call(self) -> list[Ticket]:
        """The articles of the next tokenizer call, in the order of arrival."""
        tickets = [self._waiting.popleft()]
        chars = _chars(tickets[0])
        while self._waiting and chars + _chars(self._waiting[0]) <= self.chars_per_call:
            tickets.append(self._waiting.popleft())
            chars += _chars(tickets[-1])
        self._waiting_chars -= chars
        return tickets

    def _queue(self, ticket: Ticket, tokens: TokenizedArticle | InvalidArticle, now_s: float) -> None:
        if isinstance(tokens, InvalidArticle):
            _refuse(ticket, tokens)
            return
        windows = self.cutter.cut(ticket, tokens, now_s)
        if not self._long.hold(ticket, windows):
            self.scheduler.add(windows)
        if not windows:
            finish_enriched(ticket, self.scheme)


def _check_headers(raw: RawRecord) -> None:
    if omitted := raw.omitted_headers:
        raise InvalidArticle(f"{omitted.count} headers are more than articles.max_headers allows; none of them is kept")


def _value_bytes(ticket: Ticket) -> int:
    return _ARTICLE_CHARS + len(ticket.raw.value or b"")


def _chars(ticket: Ticket) -> int:
    assert ticket.article is not None
    return _ARTICLE_CHARS + ticket.article.length_chars


def _unread(why: Unreadable) -> DeadLetter:
    message = (
        f"the client cannot unpack the batch at offset {why.batch_offset}, so only the position of this record is known: "
        f"{why.reason}"
    )
    return DeadLetter("decode", "UnreadableBatch", message)


def _refuse(ticket: Ticket, error: InvalidArticle) -> None:
    ticket.finish(DeadLetter(error.stage, type(error).__name__, str(error)))
