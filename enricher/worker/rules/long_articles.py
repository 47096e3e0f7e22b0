"""A queue of very long articles beside the others: few are in progress, and the scheduler gets few windows at a time.

One of them can have 100,000 tokens, more than all queues hold. In the common queue it would delay every later article, of
any partition, for as long as the model needs for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from enricher.worker.records import Ticket, Window

LONG_BYTES = 100_000
"""A longer value or text is a long article: twenty times a long newspaper article."""
IN_PROGRESS_BYTES = 2_000_000
"""Total size of the articles in progress, unless a single one is larger: tokens take up to 110 bytes per byte."""


@dataclass(slots=True, eq=False)
class _InProgress:
    """An article that went to the tokenizer, and its windows that the scheduler does not have yet."""

    ticket: Ticket
    held: deque[Window] = field(default_factory=deque)

    @property
    def with_scheduler(self) -> int:
        """Number of windows that the scheduler or the engine has."""
        return self.ticket.windows_left - len(self.held)


class LongArticles:
    """Long articles that wait, in the order of arrival, and those in progress."""

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
        """Whether a ticket belongs here: by its value before it is decoded, by its text too afterwards."""
        return _size(ticket) > LONG_BYTES

    def wait(self, ticket: Ticket) -> None:
        """Queue a ticket: not yet decoded, unless only its text is long."""
        self._waiting.append(ticket)

    def wait_first(self, tickets: Iterable[Ticket]) -> None:
        """Queue tickets again before all others, in this order."""
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
        """Keep the windows of an article in progress; False if it is not one of these."""
        for each in self._in_progress:
            if each.ticket is ticket:
                each.held.extend(windows)
                return True
        return False

    def due(self, now_s: float, at_once: int) -> list[Window]:
        """Windows, so that scheduler and engine have `at_once` of each article; they arrive now."""
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


def _size(ticket: Ticket) -> int:
    """Bytes of the value or, if that is more, characters of the text: a compressed value is much smaller than its text."""
    length_chars = ticket.article.length_chars if ticket.article else 0
    return max(len(ticket.raw.value or b""), length_chars)
