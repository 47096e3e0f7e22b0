"""Queues of tickets inside the intake: for the tokenizer, for a schema, and for very long articles."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from enricher.worker.records import Article, Partition, RawRecord, Ticket, Window

_ARTICLE_CHARS = 64
"""The fixed cost of an article, in characters of text: even an empty article is some work."""
LONG_BYTES = 100_000
"""A longer value or text counts as a long article: this is twenty times a long newspaper article."""
IN_PROGRESS_BYTES = 2_000_000
"""Total size of the articles in progress, unless a single one is larger: tokens take up to 110 bytes per byte."""


class Waiting:
    """Decoded tickets in the order of arrival. `chars_per_call`: how much text one call of the tokenizer gets."""

    def __init__(self, chars_per_call: int) -> None:
        self._chars_per_call = chars_per_call
        self._tickets: deque[Ticket] = deque()
        self.chars = 0
        """The characters that wait for the tokenizer, with the fixed cost of each article."""

    def __bool__(self) -> bool:
        return bool(self._tickets)

    def add(self, ticket: Ticket) -> None:
        """Queue a ticket behind all others."""
        self._tickets.append(ticket)
        self.chars += text_chars(ticket)

    def next_call(self) -> list[Ticket]:
        """Remove and return the tickets of the next call; a ticket with more text than a call gets has a call for itself."""
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


class Pending:
    """Tickets whose records name a schema that is not here yet, by its reference, each with its place in their order."""

    def __init__(self) -> None:
        self._tickets: dict[Hashable, list[tuple[int, Ticket]]] = {}
        self._by_partition: dict[Partition, int] = {}
        self._count = 0
        self._next = 0

    def __len__(self) -> int:
        return self._count

    def add(self, reference: Hashable, ticket: Ticket) -> None:
        """Let a ticket wait."""
        self._tickets.setdefault(reference, []).append((self._next, ticket))
        self._next += 1
        self._count += 1
        self._by_partition[ticket.raw.partition] = self._by_partition.get(ticket.raw.partition, 0) + 1

    def by_partition(self) -> Mapping[Partition, int]:
        """How many tickets wait, per partition with any. Safe in any thread."""
        return self._by_partition.copy()

    def take(self, references: Collection[Hashable]) -> list[Ticket]:
        """Remove and return the tickets that wait for these schemas, in the order in which they began to wait.

        Forgotten tickets are left out.
        """
        found = [each for reference in references for each in self._tickets.pop(reference, ())]
        self._remove(found)
        return [ticket for _, ticket in sorted(found, key=lambda each: each[0]) if ticket.live]

    def drop_forgotten(self) -> list[Hashable]:
        """Drop forgotten tickets; returns the references for which no ticket waits any more."""
        unwanted = []
        for reference, waiting in list(self._tickets.items()):
            left = [each for each in waiting if each[1].live]
            self._remove([each for each in waiting if not each[1].live])
            if left:
                self._tickets[reference] = left
            else:
                del self._tickets[reference]
                unwanted.append(reference)
        return unwanted

    def _remove(self, waiting: Collection[tuple[int, Ticket]]) -> None:
        self._count -= len(waiting)
        for partition, count in Counter(ticket.raw.partition for _, ticket in waiting).items():
            self._by_partition[partition] -= count
            if not self._by_partition[partition]:
                del self._by_partition[partition]


class LongArticles:
    """Very long articles, of which few are in progress, and of which the scheduler gets few windows at a time.

    One of them can have 100,000 tokens, more than all queues hold. In the common queue it would delay every later article,
    of any partition, for as long as the model needs for it.
    """

    def __init__(self) -> None:
        self._waiting: deque[Ticket] = deque()
        self._in_progress: list[_InProgress] = []

    def __bool__(self) -> bool:
        return bool(self._waiting or any(each.held for each in self._in_progress))

    @property
    def full(self) -> bool:
        """True while the decoded articles that wait are as large as those that may be in progress."""
        return sum([_size(each) for each in self._waiting if each.article]) >= IN_PROGRESS_BYTES

    @staticmethod
    def is_long(ticket: Ticket) -> bool:
        """Whether the article is long: by its value before it is decoded, by its text too afterwards."""
        return _size(ticket) > LONG_BYTES

    def wait(self, ticket: Ticket) -> None:
        """Queue a ticket, which is not decoded yet unless only its text is long."""
        self._waiting.append(ticket)

    def wait_first(self, tickets: Iterable[Ticket]) -> None:
        """Queue tickets again before all other tickets, in this order."""
        self._waiting.extendleft(reversed(list(tickets)))

    def next(self, may_decode: Callable[[Ticket], bool]) -> Ticket | None:
        """Remove and return the next ticket, if one waits that is decoded or may be, and may go to the tokenizer now."""
        ticket = next((each for each in self._waiting if each.article or may_decode(each)), None)
        if ticket is None:
            return None
        in_progress_bytes = sum(_size(each.ticket) for each in self._in_progress)
        if self._in_progress and in_progress_bytes + _size(ticket) > IN_PROGRESS_BYTES:
            return None
        self._waiting.remove(ticket)
        return ticket

    def begin(self, ticket: Ticket) -> None:
        """Note that an article goes to the tokenizer."""
        self._in_progress.append(_InProgress(ticket))

    def hold(self, ticket: Ticket, windows: Sequence[Window]) -> bool:
        """Keep the windows of an article in progress; False if the article is not a long one."""
        for each in self._in_progress:
            if each.ticket is ticket:
                each.held.extend(windows)
                return True
        return False

    def due(self, now_s: float, at_once: int) -> list[Window]:
        """The windows to queue now, so that scheduler and engine have `at_once` windows of each article."""
        due: list[Window] = []
        self._drop_done()
        for each in self._in_progress:
            wanted = min(len(each.held), at_once - each.with_scheduler)
            due += [replace(each.held.popleft(), arrived_s=now_s) for _ in range(wanted)]
        return due

    def drop_forgotten(self) -> None:
        """Drop forgotten tickets and their windows."""
        self._waiting = deque(ticket for ticket in self._waiting if ticket.live)
        self._drop_done()

    def _drop_done(self) -> None:
        self._in_progress = [each for each in self._in_progress if each.ticket.live]


@dataclass(slots=True, eq=False)
class _InProgress:
    """An article that went to the tokenizer, and its windows that the scheduler does not have yet."""

    ticket: Ticket
    held: deque[Window] = field(default_factory=deque)

    @property
    def with_scheduler(self) -> int:
        """Number of windows that the scheduler or the engine has."""
        return self.ticket.windows_left - len(self.held)


def _size(ticket: Ticket) -> int:
    """Bytes of the value or, if that is more, characters of the text: a compressed value is much smaller than its text."""
    length_chars = ticket.article.length_chars if ticket.article else 0
    return max(len(ticket.raw.value or b""), length_chars)


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
