"""Texts through one variant, in the worker's own pipeline: tokenizer, windows, device, decoding. Keeps every number.

The engine is not used, because it returns no logits and turns a window that is not finite into a failure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from enricher.errors import FatalError, ModelError
from enricher.worker.heads import EntityHead
from enricher.worker.inference.device.cores import default_concurrency
from enricher.worker.inference.device.session import SESSION_ERRORS
from enricher.worker.inference.run.advice import advice_for, cutter_for
from enricher.worker.records import (
    Article,
    EnrichedRecord,
    Part,
    Partition,
    RawRecord,
    RunOutput,
    Ticket,
    TokenizedArticle,
    TokenLabels,
)
from enricher.worker.rules.assembly import finish_enriched, take
from enricher.worker.rules.windowing import WindowCutter
from enricher.workshop.gate.scoring import EntitySpan

if TYPE_CHECKING:
    from enricher.worker.inference.checkpoint.folder import Checkpoint
    from enricher.worker.inference.run.model import PreparedModel
    from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
    from enricher.worker.records import Float32Array, Int32Array, Window
    from enricher.workshop.gate.batches import Batching
    from enricher.workshop.gate.gold import GoldText

Progress = Callable[[str, int, int], None]
"""Called with the name of the stage, the windows that are done, and all windows."""
_OUTPUTS = ["labels", "scores", "logits"]
NO_RECORD = RawRecord(Partition("gold", 0), 0, None, None)


@dataclass(frozen=True, slots=True, eq=False)
class TokenizedTexts:
    """Texts as every variant gets them: their tokens, and how windows are cut."""

    articles: tuple[Article, ...]
    tokens: tuple[TokenizedArticle, ...]
    cutter: WindowCutter
    pad_id: int

    @property
    def lengths_tokens(self) -> Int32Array:
        """`int32 [texts]`, special tokens not counted."""
        return np.array([tokens.length_tokens for tokens in self.tokens], np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class VariantRun:
    """The answers of one variant. Arrays join the tokens of all texts, each token from the window that owns it."""

    entities: tuple[tuple[EntitySpan, ...], ...]
    labels: Int32Array
    scores: Float32Array
    logits: Float32Array
    """`float32 [tokens, labels]`."""
    lengths_tokens: Int32Array
    """`int32 [texts]`, special tokens not counted."""
    windows: int
    runs: int
    """The number of batches."""

    @property
    def not_finite(self) -> int:
        """How many logits and scores are NaN or infinite."""
        return sum(int((~np.isfinite(values)).sum()) for values in (self.logits, self.scores))


def tokenize_texts(checkpoint: Checkpoint, tokenizer: ArticleTokenizer, texts: Sequence[GoldText]) -> TokenizedTexts:
    """Tokenise `texts`, with the windows that a worker serves unless its settings say otherwise.

    Raises FatalError for texts that the tokenizer refuses, SettingsError for windows that a worker would refuse.
    """
    advice = advice_for(checkpoint.folder, tokenizer.max_window_tokens)
    cutter = cutter_for(tokenizer, advice.max_window_tokens, advice.overlap_tokens)
    articles = tuple(Article(str(number), "", text.text) for number, text in enumerate(texts))
    tokens = tokenizer.tokenize(articles)
    taken = tuple(each for each in tokens if isinstance(each, TokenizedArticle))
    if len(taken) < len(tokens):
        raise FatalError(f"the tokenizer refuses {len(tokens) - len(taken)} texts of the gold set")
    return TokenizedTexts(articles, taken, cutter, tokenizer.pad_id)


class VariantRunner:
    """One variant of a checkpoint on its device. Raises ModelError if it does not run."""

    def __init__(self, model: PreparedModel, progress: Progress) -> None:
        self._model = model
        self._progress = progress
        self._concurrency = default_concurrency(model.device)
        self._session = model.open_session(threads_per_run=1, concurrency=self._concurrency)
        self._heads = (EntityHead.of(model.checkpoint.labels),)

    def run(self, texts: TokenizedTexts, batching: Batching, stage: str) -> VariantRun:
        """Run all texts, in the batches that `batching` makes. Blocks for seconds."""
        parts = [Part(Ticket(NO_RECORD, 0.0, article=article)) for article in texts.articles]
        pairs = zip(parts, texts.tokens, strict=True)
        windows = [window for part, tokens in pairs for window in texts.cutter.cut(part, tokens, 0.0)]
        batches = batching(windows)
        owned: dict[Window, tuple[Int32Array, Float32Array, Float32Array]] = {}
        done = 0
        with ThreadPoolExecutor(self._concurrency) as pool:
            outputs = pool.map(lambda batch: self._outputs(batch, texts.pad_id), batches)
            for batch, (run, answers, logits) in zip(batches, outputs, strict=True):
                for window, start in zip(run.windows, run.starts, strict=True):
                    own = window.owned_tokens(start)
                    owned[window] = answers.labels[own], answers.scores[own], logits[own]
                # Scores that are not finite are counted (`VariantRun.not_finite`) and do not end the run.
                finite = TokenLabels(answers.labels, np.nan_to_num(answers.scores))
                take(replace(run, heads=[finite]), self._heads)
                done += len(batch)
                self._progress(stage, done, len(windows))
        entities = tuple(self._entities(part) for part in parts)
        # Every token has one owner, and windows are in the order of the texts.
        labels, scores, logits = (np.concatenate(each) for each in zip(*map(owned.__getitem__, windows), strict=True))
        return VariantRun(entities, labels, scores, logits, texts.lengths_tokens, len(windows), len(batches))

    def _outputs(self, windows: list[Window], pad_id: int) -> tuple[RunOutput, TokenLabels, Float32Array]:
        """Labels and scores, and the logits of the same tokens."""
        variant = self._model.variant
        try:
            labels, scores, logits = self._session.run(_OUTPUTS, variant.feeds(windows, pad_id))
        except SESSION_ERRORS as error:
            raise ModelError(f"{variant.name} does not run: {error}") from error
        answers = TokenLabels(labels.reshape(-1), scores.reshape(-1))
        run = RunOutput(windows, variant.starts(windows, labels.shape), [answers])
        return run, answers, logits.reshape(-1, logits.shape[-1])

    def _entities(self, part: Part) -> tuple[EntitySpan, ...]:
        if part.windows == 0:
            finish_enriched(part, self._heads)
        record = part.ticket.outcome
        assert isinstance(record, EnrichedRecord), "every window of it was answered"
        return tuple(EntitySpan.of(entity) for entity in record.entities)
