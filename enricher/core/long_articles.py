"""A queue of very long articles beside the others: few are in progress, and the scheduler gets few windows at a time.

One of them can have 100,000 tokens, more than all queues hold. In the common queue it would delay every later article, of
any partition, for as long as the model needs for it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from enricher.records import RawRecord, Ticket, Window

LONG_BYTES = 100_000
"""A longer value is a long article: twenty times a long newspaper article."""
IN_PROGRESS_BYTES = 2_000_000
"""Total size of the values in progress, unless a single one is larger: tokens take up to 110 bytes per byte."""


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

    @staticmethod
    def is_long(raw: RawRecord) -> bool:
        """Whether a record belongs here."""
        return _value_bytes(raw) > LONG_BYTES

    def wait(self, ticket: Ticket) -> None:
        """Queue a ticket, not yet decoded."""
        self._waiting.append(ticket)

    def next(self) -> Ticket | None:
        """Remove and return the next ticket, if one waits and it may go to the tokenizer now."""
        if not self._waiting:
            return None
        in_progress_bytes = sum(_value_bytes(each.ticket.raw) for each in self._in_progress)
        if self._in_progress and in_progress_bytes + _value_bytes(self._waiting[0].raw) > IN_PROGRESS_BYTES:
            return None
        return self._waiting.popleft()

    def begin(self, ticket: Ticket) -> None:
        """Note that a ticket goes to the tokenizer."""
        self._in_progress.append(_InProgress(ticket))

    def hold(self, ticket: Ticket, windows: Sequence[Window]) -> bool:
        """Keep the windows of a ticket in progress; False if it is not one of these."""
        for each in self._in_progress:
            if each.ticket is ticket:
                each.held.extend(windows)
                return True
        return False

    def due(self, now_s: float, at_once: int) -> list[Window]:
        """Windows that the scheduler needs to have `at_once` of each article, its engine included; they arrive now."""
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


def _value_bytes(raw: RawRecord) -> int:
    return len(raw.value or b"")
