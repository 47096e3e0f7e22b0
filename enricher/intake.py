"""From records to windows in the queue: decode, tokenise, cut. What cannot be enriched gets its dead letter here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from enricher.core.assembly import finish_enriched
from enricher.core.decoding import LabelScheme
from enricher.core.windowing import WindowCutter
from enricher.errors import InvalidArticle
from enricher.ports import Lanes, Scheduler, Tokenized
from enricher.records import Article, DeadLetter, InFlight, TokenizedArticle, Tombstone


@dataclass(slots=True)
class Intake:
    """Takes tickets on their way to the scheduler. `articles_per_call`: how many go to the tokenizer at once."""

    decode: Callable[[bytes], Article]
    tokenizer: Lanes[list[InFlight], Tokenized]
    cutter: WindowCutter
    scheduler: Scheduler
    scheme: LabelScheme
    articles_per_call: int
    moved_s: float = 0.0
    """When the tokenizer last gave something back, or had nothing to do."""
    _waiting: list[InFlight] = field(default_factory=list)

    @property
    def room(self) -> int:
        """How many more records may come."""
        return max(0, self.tokenizer.room * self.articles_per_call - len(self._waiting))

    @property
    def busy(self) -> bool:
        """True while tickets are here or with the tokenizer."""
        return bool(self._waiting or self.tokenizer.busy)

    def take(self, tickets: Iterable[InFlight]) -> None:
        """Decode new tickets. A record without a value is a tombstone and needs no more."""
        for ticket in tickets:
            if ticket.raw.value is None:
                ticket.finish(Tombstone())
                continue
            try:
                ticket.article = self.decode(ticket.raw.value)
            except InvalidArticle as error:
                _refuse(ticket, error)
            else:
                self._waiting.append(ticket)

    def advance(self, now_s: float) -> bool:
        """Hand what waits to the tokenizer, queue the windows of what it gives back; True if something moved."""
        moved = False
        if not self.tokenizer.busy:
            self.moved_s = now_s
        while self._waiting and self.tokenizer.room:
            self.tokenizer.submit(self._waiting[: self.articles_per_call])
            del self._waiting[: self.articles_per_call]
            moved = True
        for ticket, tokens in (pair for chunk in self.tokenizer.completed() for pair in chunk):
            moved = True
            self.moved_s = now_s
            if ticket.live:
                self._queue(ticket, tokens, now_s)
        return moved

    def drop_forgotten(self) -> None:
        """Let go of tickets that nobody waits for any more, and of their windows."""
        self._waiting = [ticket for ticket in self._waiting if ticket.live]
        self.scheduler.drop_forgotten()

    def _queue(self, ticket: InFlight, tokens: TokenizedArticle | InvalidArticle, now_s: float) -> None:
        if isinstance(tokens, InvalidArticle):
            _refuse(ticket, tokens)
            return
        windows = self.cutter.cut(ticket, tokens, now_s)
        self.scheduler.add(windows)
        if not windows:
            finish_enriched(ticket, self.scheme)


def _refuse(ticket: InFlight, error: InvalidArticle) -> None:
    ticket.finish(DeadLetter(error.stage, type(error).__name__, str(error)))
