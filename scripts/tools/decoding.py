"""Articles as a worker without settings reads them."""

from __future__ import annotations

import sys

from enricher.worker.articles import ArticleReader
from enricher.worker.records import Article, Partition, RawRecord


def decode_article(value: bytes, *, max_article_chars: int, max_value_bytes: int = sys.maxsize) -> Article:
    """The article in a value. Raises InvalidArticle."""
    reader = ArticleReader(max_article_chars=max_article_chars, max_value_bytes=max_value_bytes)
    found = reader.read(RawRecord(Partition("articles", 0), 0, None, value))
    assert isinstance(found, Article), "without settings nothing is a delete event"
    return found
