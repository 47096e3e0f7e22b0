"""The log's line for each dead letter that is committed. How many are written in a minute is the log filter's decision."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from enricher.records import DeadLetter, Ticket

log = logging.getLogger(__name__)

_MOST_CHARS = 300  # of a reason; the record's header has more of it


def log_dead_letters(tickets: Sequence[Ticket]) -> None:
    """Say of each where it was and why. A reason holds no text of the article."""
    for ticket in tickets:
        letter = ticket.outcome
        if isinstance(letter, DeadLetter):
            place, reason = ticket.raw.partition, letter.message[:_MOST_CHARS]
            at = (place.topic, place.number, ticket.raw.offset)
            log.warning("dead letter: %s-%d, offset %d: %s (%s, %s)", *at, reason, letter.error_type, letter.stage)
