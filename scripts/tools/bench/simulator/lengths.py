"""Token lengths of articles by the real tokenizer, and the windows that the real rules cut them into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from enricher.worker.articles import decode_article
from enricher.worker.inference.run.model import open_model
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.records import TokenizedArticle
from enricher.worker.rules.windowing import plan_windows
from tools.bench.load import MIXES, articles

NO_LIMIT = 10_000_000
GIANT_TOKENS = 30_000
"""Length of one very long article: a report of 60 pages."""
GIANT_AMONG = 400
"""How many headlines come with each of them."""


@dataclass(frozen=True, slots=True)
class Cut:
    """Windows of at most `window_tokens`, of which `special_tokens` are special tokens."""

    window_tokens: int
    overlap_tokens: int
    special_tokens: int = 2

    def lengths(self, article_tokens: int) -> tuple[int, ...]:
        """The lengths of an article's windows, special tokens included."""
        content = self.window_tokens - self.special_tokens
        spans = plan_windows(article_tokens, content, self.overlap_tokens, self.special_tokens)
        return tuple(span.stop - span.start + self.special_tokens for span in spans)

    def __str__(self) -> str:
        return f"{self.window_tokens}/{self.overlap_tokens}"


def record_lengths(source: str, count: int) -> dict[str, list[int]]:
    """Token lengths of `count` articles of every mix, by the tokenizer of model `source`."""
    tokenizer = ArticleTokenizer(open_model(source), max_article_tokens=NO_LIMIT, too_long="truncate")
    mixes: dict[str, list[int]] = {mix: _tokens(tokenizer, articles(mix, count)) for mix in MIXES}
    among = (mixes["headlines"] * (GIANT_AMONG // count + 1))[:GIANT_AMONG]
    return mixes | {"one giant": [*among[: GIANT_AMONG // 2], GIANT_TOKENS, *among[GIANT_AMONG // 2 :]]}


def _tokens(tokenizer: Any, values: Sequence[bytes]) -> list[int]:  # noqa: ANN401  anything with `tokenize`
    decoded = [decode_article(value, max_article_chars=NO_LIMIT) for value in values]
    tokenized = [each for each in tokenizer.tokenize(decoded) if isinstance(each, TokenizedArticle)]
    assert len(tokenized) == len(values), "the samples are well-formed"
    return [each.length_tokens for each in tokenized]
