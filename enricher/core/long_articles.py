"""Very long articles, beside the others: few are under way at once, and their windows go to the scheduler piece by piece.

One of them can be 100,000 tokens, more than all queues hold: in line with the others it would keep everything that arrives
behind it, of whatever partition, waiting for as long as the model takes. Pure: time is an argument.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from enricher.records import RawRecord, Ticket, Window

LONG_BYTES = 100_000
"""Of a value that is long: twenty times a long newspaper article."""
UNDER_WAY_BYTES = 2_000_000
"""Of the values that are under way together, or one that is longer: for each, its tokens take up to 110 bytes of memory."""


@dataclass(slots=True, eq=False)
class _UnderWay:
    """One that went to the tokenizer, and those of its windows that the scheduler does not have yet."""

    ticket: Ticket
    held: deque[Window] = field(default_factory=deque)

    @property
    def with_scheduler(self) -> int:
        """Windows that the scheduler or the engine has."""
        return self.ticket.windows_left - len(self.held)


class LongArticles:
    """Those that wait, in the order of their arrival, and those that are under way."""

    def __init__(self) -> None:
        self._waiting: deque[Ticket] = deque()
        self._under_way: list[_UnderWay] = []

    def __bool__(self) -> bool:
        return bool(self._waiting or any(each.held for each in self._under_way))

    @staticmethod
    def is_long(raw: RawRecord) -> bool:
        """Whether a record belongs here."""
        return _value_bytes(raw) > LONG_BYTES

    def wait(self, ticket: Ticket) -> None:
        """Put a ticket into the line, not yet decoded."""
        self._waiting.append(ticket)

    def next(self) -> Ticket | None:
        """The next one, where there is one and it may go to the tokenizer now. It is no longer in the line."""
        if not self._waiting:
            return None
        under_way_bytes = sum(_value_bytes(each.ticket.raw) for each in self._under_way)
        if self._under_way and under_way_bytes + _value_bytes(self._waiting[0].raw) > UNDER_WAY_BYTES:
            return None
        return self._waiting.popleft()

    def begin(self, ticket: Ticket) -> None:
        """It goes to the tokenizer."""
        self._under_way.append(_UnderWay(ticket))

    def hold(self, ticket: Ticket, windows: Sequence[Window]) -> bool:
        """Keep the windows of a ticket that is under way; False where it is none of these."""
        for each in self._under_way:
            if each.ticket is ticket:
                each.held.extend(windows)
                return True
        return False

    def due(self, now_s: float, at_once: int) -> list[Window]:
        """Windows for the scheduler, so that it and the engine have `at_once` of each article: they arrive only now."""
        due: list[Window] = []
        self._drop_done()
        for each in self._under_way:
            wanted = min(len(each.held), at_once - each.with_scheduler)
            due += [replace(each.held.popleft(), arrived_s=now_s) for _ in range(wanted)]
        return due

    def drop_forgotten(self) -> None:
        """Let go of those that nobody waits for any more."""
        self._waiting = deque(ticket for ticket in self._waiting if ticket.live)
        self._drop_done()

    def _drop_done(self) -> None:
        self._under_way = [each for each in self._under_way if each.ticket.live]


def _value_bytes(raw: RawRecord) -> int:
    return len(raw.value or b"")
