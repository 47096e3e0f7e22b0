"""A stub model whose labels follow from the article alone: words are tokens, a word's hash is its label.

Tokenizer and engine replace the real ones in the worker, and neither batches nor windows may change what they find.
`reference` computes the expected outputs without any of the worker's code.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast
from zlib import crc32

import numpy as np

from enricher.errors import InvalidArticle
from enricher.worker.inference.graph.padded import PaddedFloat32
from enricher.worker.inference.run.advice import Advice
from enricher.worker.inference.run.engine import OnnxEngine
from enricher.worker.inference.run.model import PreparedModel
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.records import (
    Article,
    Batch,
    BatchResult,
    FieldName,
    ModelCard,
    RunOutput,
    TokenizedArticle,
    TokenizedField,
    TokenLabels,
    Window,
    WindowFailure,
)
from enricher.worker.wiring.loaded_tasks import Model

CARD = ModelCard(name="stub", digest="0" * 64, precision="fp32")
LABELS = ("O", "B-PER", "B-ORG", "B-LOC")
CLASSES = 16
"""A word's hash modulo this is its label's index; higher values mean no entity, so three words in sixteen are entities."""
BAD_WORD = "unbearable"
"""The model fails on windows that contain this word."""
WINDOW_TOKENS, OVERLAP_TOKENS = 34, 8
"""Two special tokens included. Small, so that short articles have several windows."""
_RUN_S = 0.01
"""Duration of a run. The stub waits instead of computing, so that records are in flight when a fault comes."""
_FIELDS: tuple[FieldName, ...] = ("title", "body")
_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class _Words:
    """Character spans of the words of a text."""

    spans: Sequence[tuple[int, int]]

    def chars_of(self, token: int) -> tuple[int, int]:
        return self.spans[token]


class StubTokenizer:
    """One token per word."""

    specials_before, specials_after = (0,), (0,)
    pad_id = 0
    max_window_tokens = WINDOW_TOKENS

    def tokenize(self, articles: Sequence[Article]) -> list[TokenizedArticle | InvalidArticle]:
        return [TokenizedArticle(tuple(_field(article, name) for name in _FIELDS)) for article in articles]


def _field(article: Article, name: FieldName) -> TokenizedField:
    found = list(_WORD.finditer(article.text(name)))
    ids = np.array([crc32(match[0].encode()) & 0x7FFFFFFF for match in found], np.int32)
    return TokenizedField(name, ids, _Words([match.span() for match in found]))


class StubEngine:
    """Labels by hash. `hang_s` may be set from any thread (by a command of `worker`)."""

    labels: tuple[str, ...] = LABELS
    provider = "stub"
    card = CARD

    def __init__(self) -> None:
        self.hang_s = 0.0
        """Extra duration of the next run."""
        self._bad = crc32(BAD_WORD.encode()) & 0x7FFFFFFF

    def run(self, batch: Batch) -> BatchResult:
        hang_s, self.hang_s = self.hang_s, 0.0
        time.sleep(_RUN_S + hang_s)
        windows = batch.windows
        bad = [window for window in windows if self._bad in window.ids]
        failures = [WindowFailure(window, "Unbearable", "the model fails on this window") for window in bad]
        return BatchResult(batch, [_labels(window) for window in windows if window not in bad], failures)

    def padded_tokens(self, batch: Batch) -> int:
        return batch.padded_tokens

    def open_thread(self) -> None:
        """No set-up per thread is needed."""


def _labels(window: Window) -> RunOutput:
    """Each window as its own result."""
    classes = window.ids % CLASSES
    labels = np.where(classes < len(LABELS), classes, 0).astype(np.int32)
    return RunOutput((window,), (0,), [TokenLabels(labels, np.full(window.length_tokens, 0.5, np.float32))])


class StubDevice:
    """The attributes of a prepared model that the worker reads when the engine is given."""

    device = "cpu"
    variant = PaddedFloat32()


def stub_model(engine: StubEngine) -> Model:
    """A model for `enricher.worker.wiring.kafka_worker`."""
    advice = Advice(max_window_tokens=WINDOW_TOKENS, overlap_tokens=OVERLAP_TOKENS)
    return Model(
        cast("PreparedModel", StubDevice()),
        cast("ArticleTokenizer", StubTokenizer()),
        cast("OnnxEngine", engine),
        advice,
        concurrency=1,
    )
