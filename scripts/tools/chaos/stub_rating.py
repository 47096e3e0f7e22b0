"""The second task of workers with two: another tokenizer, other windows, a class for each article, and its own failures.

It rates an article by the largest rating of its words, which follow from their hashes, so that neither batches nor windows
may change it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import numpy as np

from enricher.worker.build.loaded_model import Model
from enricher.worker.build.loaded_tasks import Pass, Tasks
from enricher.worker.heads import ClassHead, EntityHead
from enricher.worker.inference.run.advice import Advice
from enricher.worker.records import BatchResult, ModelCard, RunOutput, TaskCard, WindowFailure, WindowRows
from tools.chaos.stub import CARD, LABELS, StubDevice, StubEngine, StubTokenizer, stub_model

if TYPE_CHECKING:
    from enricher.worker.inference.run.engine import OnnxEngine
    from enricher.worker.inference.run.model import PreparedModel
    from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
    from enricher.worker.records import Batch, Int32Array, Window
    from enricher.worker.settings import Settings

RATING_CARD = ModelCard(name="rating stub", digest="1" * 64, precision="fp32")
RATINGS = ("1", "2", "3", "4", "5")
STEEPNESS = 2.0
"""The logit of a rating that some word has; of others it is 0."""
BAD_HASH, BAD_EVERY = 7, 997
"""The model fails on windows with a word whose hash, modulo the second, is the first: some percent of the articles."""
_WINDOW_TOKENS, _OVERLAP_TOKENS = 20, 4
_RUN_S = 0.005


class _RatingTokenizer(StubTokenizer):
    max_window_tokens = _WINDOW_TOKENS


class RatingEngine(StubEngine):
    """A row of logits for each window: for each rating, whether one of the words that the window owns has it."""

    labels = RATINGS
    card = RATING_CARD

    def run(self, batch: Batch) -> BatchResult:
        self._wait(_RUN_S)
        bad = [window for window in batch.windows if (_owned_ids(window) % BAD_EVERY == BAD_HASH).any()]
        failures = [WindowFailure(window, "Unrateable", "the model fails on this window") for window in bad]
        good = [window for window in batch.windows if window not in bad]
        rows = np.array([_row(window) for window in good], np.float32).reshape(len(good), len(RATINGS))
        return BatchResult(batch, [RunOutput(good, [0] * len(good), [WindowRows(rows)])] if good else [], failures)


def _owned_ids(window: Window) -> Int32Array:
    return window.ids[window.owned_tokens(0)]


def _row(window: Window) -> list[float]:
    found = set((_owned_ids(window) % len(RATINGS)).tolist())
    return [STEEPNESS if rating in found else 0.0 for rating in range(len(RATINGS))]


def two_tasks(settings: Settings, engine: StubEngine, rating: RatingEngine) -> Tasks:
    entities = TaskCard("ner", "ner", CARD)
    ratings = TaskCard("rating", "classification", RATING_CARD, pooling="max")
    model = Model(
        cast("PreparedModel", StubDevice()),
        cast("ArticleTokenizer", _RatingTokenizer()),
        cast("OnnxEngine", rating),
        Advice(max_window_tokens=_WINDOW_TOKENS, overlap_tokens=_OVERLAP_TOKENS),
        concurrency=1,
    )
    return Tasks(
        (
            Pass(("ner",), stub_model(engine), (EntityHead.of(LABELS, entities),), settings),
            Pass(("rating",), model, (ClassHead(ratings, RATINGS, multi_label=True),), settings),
        ),
        (entities, ratings),
    )
