"""Refuses records before they are decoded: too many headers."""

from __future__ import annotations

from enricher.errors import InvalidArticle
from enricher.worker.records import RawRecord


def check_headers(raw: RawRecord) -> None:
    """Raise InvalidArticle if headers of a record were omitted."""
    if omitted := raw.omitted_headers:
        raise InvalidArticle(f"{omitted.count} headers are more than articles.max_headers allows; none of them is kept")
