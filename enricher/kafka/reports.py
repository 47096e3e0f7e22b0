"""What the broker says of the records of one transaction, and who is to blame where it takes them not.

Each transaction has reports of its own: a producer that is retired closes in a thread of its own, and may report late.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from confluent_kafka import KafkaError, Message

from enricher.records import Ticket

_TOO_LARGE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE}


class Reports:
    """The failures; that a record was written is not even said (`client.py`)."""

    def __init__(self) -> None:
        self.failed: list[tuple[Ticket, KafkaError]] = []

    def of(self, ticket: Ticket) -> Callable[[KafkaError | None, Message], None]:
        """The client's callback for the record of this ticket."""
        return partial(self._note, ticket)

    def refused(self, size_bytes: Callable[[Ticket], int]) -> tuple[list[Ticket], KafkaError]:
        """The records that the broker will never take, and what it said; `size_bytes` is that of a ticket's output.

        It refuses requests, not records, so the blame has to be found: a compacted topic takes no record without a key;
        for the size the largest is blamed first, and the others get their chance after the recovery.
        """
        for ticket, error in self.failed:
            if error.code() in _TOO_LARGE:
                oversized = [ticket for ticket, error in self.failed if error.code() in _TOO_LARGE]
                return [max(oversized, key=size_bytes)], error
            if error.code() == KafkaError.INVALID_RECORD and ticket.raw.key is None:
                return [t for t, e in self.failed if e.code() == error.code() and t.raw.key is None], error
        return [], self.failed[0][1]

    def _note(self, ticket: Ticket, error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            self.failed.append((ticket, error))
