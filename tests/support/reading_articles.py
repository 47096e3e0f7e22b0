"""Reads articles in tests where nothing is a delete event."""

from __future__ import annotations

from enricher.worker.records import Article, Tombstone


def article_in(found: Article | Tombstone) -> Article:
    """What a reader returned, which is an article."""
    assert isinstance(found, Article)
    return found
