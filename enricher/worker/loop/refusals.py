"""Refuses records before they are decoded: too many headers, and batches that the client cannot unpack."""

from __future__ import annotations

from enricher.errors import InvalidArticle
from enricher.worker.records import DeadLetter, RawRecord, Unreadable


def check_headers(raw: RawRecord) -> None:
    """Raise InvalidArticle if headers of a record were omitted."""
    if omitted := raw.omitted_headers:
        raise InvalidArticle(f"{omitted.count} headers are more than articles.max_headers allows; none of them is kept")


def dead_letter_for(why: Unreadable) -> DeadLetter:
    """The dead letter of a record that the client cannot read."""
    message = (
        f"the client cannot unpack the batch at offset {why.batch_offset}, so only the position of this record is known: "
        f"{why.reason}"
    )
    return DeadLetter("decode", "UnreadableBatch", message)
