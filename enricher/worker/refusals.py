"""Dead letters of records that cannot be decoded or tokenised."""

from __future__ import annotations

from enricher.errors import InvalidArticle
from enricher.records import DeadLetter, RawRecord, Ticket, Unreadable


def check_headers(raw: RawRecord) -> None:
    """Raise InvalidArticle if headers of a record were omitted."""
    if omitted := raw.omitted_headers:
        raise InvalidArticle(f"{omitted.count} headers are more than articles.max_headers allows; none of them is kept")


def unread(why: Unreadable) -> DeadLetter:
    """The dead letter of a record that the client cannot read."""
    message = (
        f"the client cannot unpack the batch at offset {why.batch_offset}, so only the position of this record is known: "
        f"{why.reason}"
    )
    return DeadLetter("decode", "UnreadableBatch", message)


def refuse(ticket: Ticket, error: InvalidArticle) -> None:
    """Finish a ticket with a dead letter that says why."""
    ticket.finish(DeadLetter(error.stage, type(error).__name__, str(error)))
