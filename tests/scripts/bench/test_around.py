"""The leg `around`: the stubs answer what the real model and tokenizer answered."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from support.answers import WindowLabels, batch_result, by_window

from enricher.worker.records import (
    Article,
    Batch,
    BatchResult,
    Partition,
    RawRecord,
    Ticket,
    TokenizedArticle,
    TokenizedField,
    Window,
)
from enricher.worker.rules.windowing import WindowCutter
from tools.bench.stubs import KnownAnswers


class _Engine:
    """An engine whose labels are the token ids."""

    def __init__(self) -> None:
        self.asked = 0

    def run(self, batch: Batch) -> BatchResult:
        self.asked += len(batch.windows)
        return batch_result(WindowLabels(w, w.ids, w.ids.astype(np.float32)) for w in batch.windows)


class _Tokenizer:
    """A tokenizer with one token per letter."""

    def tokenize(self, articles: list[Article]) -> list[TokenizedArticle]:
        ids = [np.array([ord(letter) for letter in article.body], np.int32) for article in articles]
        return [TokenizedArticle((TokenizedField("body", each, None),)) for each in ids]  # type: ignore[arg-type]


def _cut(tokens: TokenizedArticle) -> list[Window]:
    ticket = Ticket(RawRecord(Partition("", 0), 0, None, None), 0.0)
    return WindowCutter(6, 1, (1,), (2,)).cut(ticket, tokens, 0.0)


def test_known_answers_are_those_of_the_model_and_of_the_tokenizer() -> None:
    """Each is asked once per text; inside the contexts neither is asked, and afterwards both are restored."""
    model = SimpleNamespace(engine=_Engine(), tokenizer=_Tokenizer())
    articles = [Article("1", "", "abcdefghij"), Article("2", "", "abc"), Article("3", "", "abc")]
    answers = KnownAnswers(model, articles, _cut)  # type: ignore[arg-type]
    asked = model.engine.asked
    with answers.in_place_of_the_model(), answers.in_place_of_the_tokenizer():
        (tokens,) = model.tokenizer.tokenize([Article("4", "", "abcdefghij")])
        windows = tuple(_cut(tokens))
        results = by_window(model.engine.run(Batch(windows)))
    assert asked == model.engine.asked == len(windows) + 1
    assert [window.ids.tolist() for window in windows] == [
        each.labels.tolist() for each in results if isinstance(each, WindowLabels)
    ]
    assert model.engine.run(Batch(windows)) is not None
    assert model.engine.asked == asked + len(windows)
