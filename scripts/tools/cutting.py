"""Cuts articles into windows as the worker does, for what runs a model without a worker."""

from __future__ import annotations

from collections.abc import Iterable

from enricher.errors import InvalidArticle
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.records import Article, Partition, RawRecord, Ticket, Window
from enricher.worker.rules.windowing import WindowCutter

_TEXTS = Partition("texts", 0)


def windows_of(tokenizer: ArticleTokenizer, cutter: WindowCutter, articles: Iterable[Article]) -> list[list[Window]]:
    """The windows of each article. Raises InvalidArticle if the tokenizer refuses one."""
    windows = []
    for number, article in enumerate(articles):
        [tokens] = tokenizer.tokenize([article])
        if isinstance(tokens, InvalidArticle):
            raise tokens
        ticket = Ticket(RawRecord(_TEXTS, number, None, None), 0.0, article=article)
        windows.append(cutter.cut(ticket, tokens, now_s=0.0))
    return windows
