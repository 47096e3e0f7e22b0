"""Decodes and tokenises articles and cuts them into windows. Records that cannot be enriched become dead letters here."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import ceil

from enricher.errors import InvalidArticle, SchemaPending
from enricher.worker.articles import letter_for
from enricher.worker.heads import Head, is_for, is_unmeasured
from enricher.worker.heads.languages import loggable_tag
from enricher.worker.loop.pool import WorkerPool
from enricher.worker.loop.ports import Scheduler, Schemas, Tokenized
from enricher.worker.loop.queues import LongArticles, Pending, Waiting, beyond_the_record, text_chars, value_bytes
from enricher.worker.records import (
    MAX_HEADERS,
    Article,
    Keep,
    Partition,
    RawRecord,
    Skipped,
    Ticket,
    TokenizedArticle,
    Tombstone,
)
from enricher.worker.rules.assembly import finish_enriched
from enricher.worker.rules.windowing import WindowCutter

log = logging.getLogger(__name__)

_AVERAGED_ARTICLES = 32
"""The number of recent articles over which the estimate of `capacity` is averaged, about."""
_LONG_BATCHES = 8
"""The windows of one long article that the scheduler holds, in full batches: enough to keep the device busy alone."""
_DECODED_BYTES = 1_000_000
"""One turn of the loop decodes values up to the first that exceeds this sum: hostile JSON takes 0.15 s per megabyte."""
_DECODING_S = 0.25
"""How long one turn of the loop begins to decode records, whatever a stranger's schema makes of a few bytes."""

_MOST_TAGS = 100
"""The most languages that are logged, each once: every article could name another one."""
_NO_TASK = "no task is for articles in the language %s, so their records are empty. %s"
_UNMEASURED = "there are articles in the language %s, in which nobody measured the model that answers them. %s"

MayDecode = Callable[[Ticket], bool]
"""Whether a record may be decoded now."""


@dataclass(slots=True)
class Intake:
    """Takes tickets from arrival to the scheduler. Owns the tokenizer pool and `schemas`.

    A ticket whose schema is not here yet waits. `schemas` is None if no record names a schema.
    `chars_per_call`: how much text one call of the tokenizer gets, so that all calls take about as long; a longer article
    gets a call for itself.
    """

    read: Callable[[RawRecord], Article | Tombstone | Skipped]
    tokenizer: WorkerPool[list[Ticket], Tokenized]
    cutter: WindowCutter
    scheduler: Scheduler
    heads: Sequence[Head]
    keep: Keep
    chars_per_call: int
    clock: Callable[[], float]
    schemas: Schemas | None = None
    _logged_tags: set[str | None] = field(default_factory=set)
    """Languages without a task, or that a model was not measured in; None stands for all texts that must not be logged."""
    _waiting: Waiting = field(init=False)
    _long: LongArticles = field(default_factory=LongArticles)
    _tokenizer_moved_s: float = 0.0
    """When the tokenizer last returned a result, or was last idle."""
    _undecoded: deque[Ticket] = field(default_factory=deque)
    _undecoded_bytes: int = 0
    _pending: Pending = field(default_factory=Pending)
    _unpacked_bytes: int = 0
    _usual_chars: float = 1_000.0
    """Moving average of the text to tokenise for an article; for a refused record, its bytes."""

    def __post_init__(self) -> None:
        self._waiting = Waiting(self.chars_per_call)

    @property
    def capacity(self) -> int:
        """How many more records can be taken, if they are as long as recent records."""
        free_chars = self.tokenizer.capacity * self.chars_per_call - self._waiting.chars - self._undecoded_bytes
        return max(0, ceil(free_chars / self._usual_chars))

    @property
    def busy(self) -> bool:
        """True while tickets are here or with the tokenizer, except for those that wait for a schema: they need no work."""
        return bool(self._undecoded or self._waiting or self._long or self.tokenizer.busy)

    @property
    def waiting_articles(self) -> int:
        """How many tickets wait for a schema. Safe in any thread."""
        return len(self._pending)

    def waiting_tickets(self) -> Mapping[Partition, int]:
        """How many tickets wait for a schema, per partition with any. Safe in any thread."""
        return self._pending.by_partition()

    def tokenizer_waits_s(self, now_s: float) -> float:
        """Seconds since the tokenizer last returned a result, while it has work; else 0."""
        return now_s - self._tokenizer_moved_s if self.tokenizer.busy else 0.0

    def close(self) -> None:
        """Close the tokenizer pool and the schemas. Blocks within their bounds."""
        with ExitStack() as closing:
            closing.callback(self.tokenizer.close)
            if self.schemas:
                closing.callback(self.schemas.close)

    def take(self, tickets: Iterable[Ticket]) -> None:
        """Queue new tickets. A record without a value is a tombstone and is finished at once."""
        for ticket in tickets:
            if ticket.raw.value is None:
                ticket.finish(Tombstone())
            elif self._long.is_long(ticket):
                self._long.wait(ticket)
            else:
                self._undecoded.append(ticket)
                self._undecoded_bytes += value_bytes(ticket)

    def resume_answered(self) -> list[Ticket]:
        """Queue the tickets whose schemas are answered, before newer tickets; returns them."""
        if not self.schemas or not (answered := self.schemas.take_answered()):
            return []
        again = self._pending.take(answered)
        self._long.wait_first(ticket for ticket in again if self._long.is_long(ticket))
        short = [ticket for ticket in again if not self._long.is_long(ticket)]
        self._undecoded.extendleft(reversed(short))
        self._undecoded_bytes += sum(map(value_bytes, short))
        return again

    def advance(self, now_s: float, may_decode: MayDecode) -> bool:
        """Decode records, submit articles to the tokenizer, queue the windows of its results; True if anything moved.

        Decodes at most what one turn of the loop has time for, however much one poll returned.
        """
        moved = self._decode_some(now_s + _DECODING_S, may_decode)
        if not self.tokenizer.busy:
            self._tokenizer_moved_s = now_s
        while self._waiting and self.tokenizer.capacity:
            self.tokenizer.submit(self._waiting.next_call())
            moved = True
        for ticket, tokens in (pair for chunk in self.tokenizer.take_results() for pair in chunk):
            moved = True
            self._tokenizer_moved_s = now_s
            if ticket.live:
                self._queue(ticket, tokens, now_s)
        # After results were taken back: other articles may use all capacity at once.
        moved |= self._begin_long(may_decode)
        return self._continue_long(now_s) or moved

    def take_unpacked_bytes(self) -> int:
        """The sum of the tickets' `unpacked_bytes` since the last call."""
        size_bytes, self._unpacked_bytes = self._unpacked_bytes, 0
        return size_bytes

    def drop_forgotten(self) -> None:
        """Drop forgotten tickets and their windows."""
        if (unwanted := self._pending.drop_forgotten()) and self.schemas:
            self.schemas.abandon(unwanted)
        self._long.drop_forgotten()
        self._undecoded = deque(ticket for ticket in self._undecoded if ticket.live)
        self._undecoded_bytes = sum(map(value_bytes, self._undecoded))
        self._waiting.drop_forgotten()
        self.scheduler.drop_forgotten()

    def _begin_long(self, may_decode: MayDecode) -> bool:
        """Submit the next long article to the tokenizer, if it may begin; True if there was one."""
        if not self.tokenizer.capacity or not (ticket := self._long.next(may_decode)):
            return False
        if (ticket.article or self._decode(ticket)) and self._has_task(ticket):
            self._long.begin(ticket)
            self.tokenizer.submit([ticket])
        return True

    def _continue_long(self, now_s: float) -> bool:
        """Queue windows of the long articles in progress, as many as the scheduler needs of each; True if any."""
        at_once = _LONG_BATCHES * self.scheduler.max_batch_tokens // self.cutter.max_window_tokens
        windows = self._long.due(now_s, max(1, at_once))
        self.scheduler.add(windows)
        return bool(windows)

    def _decode_some(self, deadline_s: float, may_decode: MayDecode) -> bool:
        """Decode in the order of arrival, within `_DECODED_BYTES` and until the deadline; True if anything was.

        A small value may be unpacked to a long article. While many long articles wait, no more are decoded, to bound memory.
        """
        decoded_bytes, unpacked_before = 0, self._unpacked_bytes
        while (
            not self._long.full
            and self.clock() < deadline_s
            and decoded_bytes + self._unpacked_bytes - unpacked_before < _DECODED_BYTES
            and (ticket := self._next_undecoded(may_decode))
        ):
            decoded_bytes += value_bytes(ticket)
            self._undecoded_bytes -= value_bytes(ticket)
            if self._decode(ticket):
                self._queue_decoded(ticket)
            elif ticket.live:  # it waits for its schema, and its length is not known yet
                continue
            chars = text_chars(ticket) if ticket.article else value_bytes(ticket)
            self._usual_chars += (chars - self._usual_chars) / _AVERAGED_ARTICLES
        return decoded_bytes > 0

    def _next_undecoded(self, may_decode: MayDecode) -> Ticket | None:
        for position, ticket in enumerate(self._undecoded):
            if may_decode(ticket):
                del self._undecoded[position]
                return ticket
        return None

    def _queue_decoded(self, ticket: Ticket) -> None:
        if self._long.is_long(ticket):
            self._long.wait(ticket)
        elif self._has_task(ticket):
            self._waiting.add(ticket)

    def _has_task(self, ticket: Ticket) -> bool:
        """Whether a task is for the language of a decoded article; if none is, finish the ticket with an empty record."""
        article = ticket.article
        assert article is not None
        found = any(is_for(head, article) for head in self.heads)
        if not found:
            self._unpacked_bytes += finish_enriched(ticket, self.heads, self.keep)
        language = (article.language or "").strip()
        if language and not found:
            what_to_do = "Add it to `languages` of a task, or add a task without `languages`"
            self._log_language(language, _NO_TASK, what_to_do)
        elif language and any(is_unmeasured(head, article) for head in self.heads):
            ticket.unmeasured = True
            what_to_do = (
                "Measure it with `enricher model evaluate`, or give the language a deployment with a model of its own"
            )
            self._log_language(language, _UNMEASURED, what_to_do)
        return found

    def _log_language(self, language: str, message: str, what_to_do: str) -> None:
        tag, logged = loggable_tag(language), self._logged_tags
        if tag in logged or len(logged) >= _MOST_TAGS:
            return
        logged.add(tag)
        if tag is None:
            tag = "(not shown: it is no tag such as en, eng or en-GB)"
            what_to_do = "Languages are known by such tags"
        if len(logged) == _MOST_TAGS:
            what_to_do += "; further languages are not logged"
        log.warning(message, tag, what_to_do)

    def _decode(self, ticket: Ticket) -> bool:
        if omitted := ticket.raw.omitted_headers:
            message = f"{omitted.count} headers are more than {MAX_HEADERS}; none of them is kept"
            ticket.finish(letter_for(InvalidArticle(message)))
            return False
        try:
            found = self.read(ticket.raw)
            if isinstance(found, Tombstone | Skipped):
                ticket.finish(found)
                return False
            ticket.article = found
            ticket.unpacked_bytes = beyond_the_record(ticket.article, ticket.raw)
            self._unpacked_bytes += ticket.unpacked_bytes
        except InvalidArticle as error:
            ticket.finish(letter_for(error))
            return False
        except SchemaPending as pending:
            assert self.schemas, "what a reader waits for, somebody gets"
            self._pending.add(pending.reference, ticket)
            return False
        return True

    def _queue(self, ticket: Ticket, tokens: TokenizedArticle | InvalidArticle, now_s: float) -> None:
        if isinstance(tokens, InvalidArticle):
            ticket.finish(letter_for(tokens))
            return
        windows = self.cutter.cut(ticket, tokens, now_s)
        if not self._long.hold(ticket, windows):
            self.scheduler.add(windows)
        if not windows:
            self._unpacked_bytes += finish_enriched(ticket, self.heads, self.keep)
