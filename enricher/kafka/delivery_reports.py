"""Delivery reports of one transaction, and which records caused a rejection.

Each transaction has its own: a producer that is closed in the background may still report about an older one.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from confluent_kafka import KafkaError, Message

from enricher.records import Ticket

_TOO_LARGE = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE}


class DeliveryReports:
    """Collects the failures. The client does not report successes (`delivery.report.only.error`)."""

    def __init__(self) -> None:
        self.failed: list[tuple[Ticket, KafkaError]] = []

    def callback_for(self, ticket: Ticket) -> Callable[[KafkaError | None, Message], None]:
        """The `on_delivery` of this ticket's record."""
        return partial(self._note, ticket)

    def refused(self, size_bytes: Callable[[Ticket], int]) -> tuple[list[Ticket], KafkaError]:
        """The records that the broker will never take, perhaps none, and the error; `size_bytes` is that of an output.

        The broker refuses whole requests, so the records that caused it have to be found. A compacted topic takes no record
        without a key. Of records that are too large only the largest is named; the others are tried again.
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
