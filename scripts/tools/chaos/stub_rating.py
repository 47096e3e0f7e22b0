"""The second task of workers with two: a class for each article from the same encoder, and its own failures.

It rates an article by the largest rating of its words, which follow from their hashes, so that neither batches nor windows
may change it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from enricher.worker.heads import ClassHead, EntityHead
from enricher.worker.records import BatchResult, ModelCard, TaskCard, WindowFailure, WindowRows
from enricher.worker.wiring.loaded_tasks import Tasks
from tools.chaos.stub import CARD, LABELS, StubEngine, stub_model

if TYPE_CHECKING:
    from enricher.worker.records import Batch, Float32Array, Int32Array, Window
    from enricher.worker.settings import Settings

RATING_CARD = ModelCard(name="rating stub", digest="1" * 64, precision="fp32")
RATINGS = ("1", "2", "3", "4", "5")
STEEPNESS = 2.0
"""The logit of a rating that some word has; of others it is 0."""
BAD_HASH, BAD_EVERY = 7, 997
"""The model fails on windows with a word whose hash, modulo the second, is the first: some percent of the articles."""


class RatingEngine(StubEngine):
    """Also a row of logits for each window: for each rating, whether one of the words that the window owns has it."""

    def run(self, batch: Batch) -> BatchResult:
        done = super().run(batch)
        good = [run for run in done.runs if not (_owned_ids(run.windows[0]) % BAD_EVERY == BAD_HASH).any()]
        failures = [
            WindowFailure(run.windows[0], "Unrateable", "the model fails on this window")
            for run in done.runs
            if run not in good
        ]
        runs = [replace(run, heads=[*run.heads, WindowRows(_row(run.windows[0]))]) for run in good]
        return BatchResult(batch, runs, [*done.failures, *failures])


def _owned_ids(window: Window) -> Int32Array:
    return window.ids[window.owned_tokens(0)]


def _row(window: Window) -> Float32Array:
    """`float32 [1, ratings]`."""
    found = set((_owned_ids(window) % len(RATINGS)).tolist())
    return np.array([[STEEPNESS if rating in found else 0.0 for rating in range(len(RATINGS))]], np.float32)


def two_tasks(settings: Settings, engine: RatingEngine) -> Tasks:
    entities = TaskCard("ner", "ner", CARD)
    ratings = TaskCard("rating", "classification", RATING_CARD, pooling="max")
    heads = (EntityHead.of(LABELS, entities), ClassHead(ratings, RATINGS, multi_label=True))
    return Tasks(stub_model(engine), heads, settings)
