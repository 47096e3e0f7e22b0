"""Stubs that answer at once with what the real model and tokenizer returned for the same texts.

What remains is the worker's own work. The answers are real, not noise: as many entities, as many words of several
tokens, and as long spans as the model finds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from enricher.errors import InvalidArticle
from enricher.worker.build.loaded_model import Model
from enricher.worker.inference.graph.variants import starts_in_a_row
from enricher.worker.records import Article, Batch, BatchResult, RunOutput, TokenizedArticle, TokenLabels, Window


class KnownAnswers:
    """Labels and scores by token ids, tokens by text: recorded once from the model and tokenizer, at construction."""

    def __init__(
        self, model: Model, articles: Iterable[Article], cut: Callable[[TokenizedArticle], list[Window]]
    ) -> None:
        self._model = model
        self._tokens: dict[tuple[str, str], TokenizedArticle | InvalidArticle] = {}
        self._labels: dict[bytes, tuple[Any, Any]] = {}
        for article in articles:
            [tokens] = model.tokenizer.tokenize([article])
            assert isinstance(tokens, TokenizedArticle)
            self._tokens[article.title, article.body] = tokens
            for window in cut(tokens):
                self._ask(window)

    @contextmanager
    def in_place_of_the_model(self) -> Iterator[None]:
        """Inside the context the engine answers from memory."""
        with patch.object(self._model.engine, "run", self.run):
            yield

    @contextmanager
    def in_place_of_the_tokenizer(self) -> Iterator[None]:
        """Inside the context the tokenizer answers from memory."""
        with patch.object(self._model.tokenizer, "tokenize", self.tokenize):
            yield

    def run(self, batch: Batch) -> BatchResult:
        """The recorded answers of the engine's `run`."""
        known = [self._labels[window.ids.tobytes()] for window in batch.windows]
        labels, scores = map(np.concatenate, zip(*known, strict=True))
        return BatchResult(
            batch, [RunOutput(batch.windows, starts_in_a_row(batch.windows), [TokenLabels(labels, scores)])]
        )

    def tokenize(self, articles: Sequence[Article]) -> list[TokenizedArticle | InvalidArticle]:
        """The recorded answers of `tokenize`."""
        return [self._tokens[article.title, article.body] for article in articles]

    def _ask(self, window: Window) -> None:
        key = window.ids.tobytes()
        if key not in self._labels:
            [run] = self._model.engine.run(Batch((window,))).runs
            its_own = slice(run.starts[0], run.starts[0] + window.length_tokens)
            [answers] = run.heads
            assert isinstance(answers, TokenLabels)
            self._labels[key] = answers.labels[its_own], answers.scores[its_own]
