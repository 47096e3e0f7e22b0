"""A model whose every answer can be computed anew from the article alone: words are tokens, a word's hash is its label.

Tokenizer and engine here are what the worker gets in place of the real ones. What they must lead to, computed without any
of the worker's code, is in `reference`.
"""

from __future__ import annotations

import re
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast
from zlib import crc32

import numpy as np

from enricher.app import Model
from enricher.inference.graph.padded import PaddedFloat32
from enricher.inference.run.advice import Advice
from enricher.records import (
    BatchResult,
    ModelCard,
    RunLabels,
    TokenizedArticle,
    TokenizedField,
    WindowFailure,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enricher.errors import InvalidArticle
    from enricher.inference.run.engine import OnnxEngine
    from enricher.inference.run.model import PreparedModel
    from enricher.inference.tokenizer.articles import ArticleTokenizer
    from enricher.records import Article, Batch, FieldName, Window

CARD = ModelCard(name="stub", digest="0" * 64, precision="fp32")
LABELS = ("O", "B-PER", "B-ORG", "B-LOC")
CLASSES = 16
"""A word's hash modulo this is its label's number where there is one: three words in sixteen are entities."""
BAD_WORD = "unbearable"
"""The model fails on a window with this word in it."""
WINDOW_TOKENS, OVERLAP_TOKENS = 34, 8
"""Small, so that short articles have several windows: two special tokens included."""
_BATCH_TOKENS = 1024
_RUN_S = 0.01
"""How long the device takes for a batch: it waits and does not compute, so that there is something in flight to lose."""
_FIELDS: tuple[FieldName, ...] = ("title", "body")
_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class _Words:
    """Where the words of a text stand."""

    spans: Sequence[tuple[int, int]]

    def word_of(self, token: int) -> int:
        """Every token is a word of its own."""
        return token

    def chars_of(self, token: int) -> tuple[int, int]:
        """Half-open."""
        return self.spans[token]


class StubTokenizer:
    """One token per word."""

    specials_before, specials_after = (0,), (0,)
    pad_id = 0
    max_window_tokens = WINDOW_TOKENS

    def tokenize(self, articles: Sequence[Article]) -> list[TokenizedArticle | InvalidArticle]:
        """As the real one."""
        return [TokenizedArticle(tuple(_field(article, name) for name in _FIELDS)) for article in articles]


def _field(article: Article, name: FieldName) -> TokenizedField:
    found = list(_WORD.finditer(article.text(name)))
    ids = np.array([crc32(match[0].encode()) & 0x7FFFFFFF for match in found], np.int32)
    return TokenizedField(name, ids, _Words([match.span() for match in found]))


class StubEngine:
    """Labels by hash. Can be told to hang, and to lose a window: from any thread, by the commands of `worker`."""

    labels = LABELS
    card = CARD

    def __init__(self) -> None:
        self.hang_s = 0.0
        """How long the next run takes on top."""
        self.lose = threading.Event()
        """The next run gives back one window less than it was given."""
        self._bad = crc32(BAD_WORD.encode()) & 0x7FFFFFFF

    def run(self, batch: Batch) -> BatchResult:
        """As the real one."""
        hang_s, self.hang_s = self.hang_s, 0.0
        time.sleep(_RUN_S + hang_s)
        windows = batch.windows
        if self.lose.is_set():
            self.lose.clear()
            windows = windows[:-1]
        bad = [window for window in windows if self._bad in window.ids]
        failures = [WindowFailure(window, "Unbearable", "the model cannot bear this window") for window in bad]
        return BatchResult(batch, [_labels(window) for window in windows if window not in bad], failures)

    def padded_tokens(self, batch: Batch) -> int:
        """As a device that pads."""
        return batch.padded_tokens

    def open_thread(self) -> None:
        """A thread needs nothing of its own."""


def _labels(window: Window) -> RunLabels:
    """Each window as a run of its own."""
    classes = window.ids % CLASSES
    labels = np.where(classes < len(LABELS), classes, 0).astype(np.int32)
    return RunLabels((window,), (0,), labels, np.full(window.length_tokens, 0.5, np.float32))


class _Device:
    """All that is asked of a prepared model whose engine is not made from it."""

    device = "cpu"
    variant = PaddedFloat32()


def stub_model(engine: StubEngine) -> Model:
    """What `enricher.app.kafka_worker` takes for a model."""
    advice = Advice(WINDOW_TOKENS, OVERLAP_TOKENS, max_batch_tokens=_BATCH_TOKENS)
    return Model(
        cast("PreparedModel", _Device()),
        cast("ArticleTokenizer", StubTokenizer()),
        cast("OnnxEngine", engine),
        advice,
        concurrency=1,
    )
