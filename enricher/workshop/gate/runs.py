"""Runs texts through one variant, in the worker's own pipeline, and keeps every number.

`VariantRunner` is for a head that finds entities. `RowsRunner` is for a head with one row per window, logits or a vector:
the row of a text is the mean of its windows' rows, weighted by the tokens that each owns, as the worker makes it by default.
The engine is not used, because it returns no logits and turns a window that is not finite into a failure.

`COMPOSITIONS` are several ways to put the same windows into batches. The answers of a variant must not depend on the way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from enricher.errors import FatalError, ModelError
from enricher.worker.heads import EntityHead, reads_of
from enricher.worker.heads.head import pool
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.hardware import default_concurrency
from enricher.worker.inference.device.sessions import SESSION_ERRORS
from enricher.worker.inference.run.advice import default_cutter
from enricher.worker.inference.run.model import PreparedModel
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.records import (
    Article,
    EnrichedRecord,
    Float32Array,
    Int32Array,
    OwnedRow,
    Partition,
    RawRecord,
    RunOutput,
    Ticket,
    TokenizedArticle,
    TokenLabels,
    Window,
)
from enricher.worker.rules.assembly import finish_enriched, take
from enricher.worker.rules.batching import by_length, in_order
from enricher.worker.rules.windowing import WindowCutter
from enricher.workshop.gate.gold import GoldText
from enricher.workshop.gate.scoring import EntitySpan

Progress = Callable[[str, int, int], None]
"""Called with the name of the stage, the windows that are done, and all windows."""
_OUTPUTS = ["labels", "scores", "logits"]
_ROWS_OUTPUT = "head.0.rows"
"""The name in graph/builder.py of the output of the only head of a graph, unless it finds entities."""
_NO_RECORD = RawRecord(Partition("gold", 0), 0, None, None)


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

    def cut(self) -> list[tuple[Ticket, list[Window]]]:
        """Each text as a ticket, with its windows."""
        tickets = [Ticket(_NO_RECORD, 0.0, article=article) for article in self.articles]
        return [
            (ticket, self.cutter.cut(ticket, tokens, 0.0)) for ticket, tokens in zip(tickets, self.tokens, strict=True)
        ]


@dataclass(frozen=True, slots=True, eq=False)
class VariantRun:
    """The answers of one variant. Arrays join the tokens of all texts; each token is from the window that owns it."""

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
    cutter = default_cutter(checkpoint.folder, tokenizer)
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
        cut = texts.cut()
        windows = [window for _, own in cut for window in own]
        batches = batching(windows)
        owned: dict[Window, tuple[Int32Array, Float32Array, Float32Array]] = {}
        done = 0
        with ThreadPoolExecutor(self._concurrency) as executor:
            outputs = executor.map(lambda batch: self._outputs(batch, texts.pad_id), batches)
            for batch, (run, answers, logits) in zip(batches, outputs, strict=True):
                for window, start in zip(run.windows, run.starts, strict=True):
                    own = window.owned_tokens(start)
                    owned[window] = answers.labels[own], answers.scores[own], logits[own]
                # Scores that are not finite are counted (`VariantRun.not_finite`) and do not end the run.
                finite = TokenLabels(answers.labels, np.nan_to_num(answers.scores))
                take(replace(run, heads=[finite]), self._heads)
                done += len(batch)
                self._progress(stage, done, len(windows))
        entities = tuple(self._entities(ticket) for ticket, _ in cut)
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

    def _entities(self, ticket: Ticket) -> tuple[EntitySpan, ...]:
        if ticket.windows == 0:
            finish_enriched(ticket, self._heads)
        record = ticket.outcome
        assert isinstance(record, EnrichedRecord), "every window of it was answered"
        return tuple(EntitySpan.of(entity) for entity in record.entities)


@dataclass(frozen=True, slots=True, eq=False)
class RowsRun:
    """The answers of one variant."""

    rows: Float32Array
    """`float32 [texts, values]`; numbers that are not finite are 0 here."""
    not_finite: int
    """Numbers that are NaN or infinite."""
    lengths_tokens: Int32Array
    """`int32 [texts]`, special tokens not counted."""
    windows: int
    runs: int


class RowsRunner:
    """One variant of a checkpoint on its device. Raises ModelError if it does not run."""

    def __init__(self, model: PreparedModel, progress: Progress) -> None:
        self._model = model
        self._progress = progress
        self._concurrency = default_concurrency(model.device)
        self._reads = reads_of([model.checkpoint.head])
        self._session = model.open_session(threads_per_run=1, concurrency=self._concurrency)

    def run(self, texts: TokenizedTexts, batching: Batching, stage: str) -> RowsRun:
        """Run all texts, in the batches that `batching` makes. Blocks for seconds. Raises FatalError."""
        cut = [windows for _, windows in texts.cut()]
        if empty := sum(not windows for windows in cut):
            raise FatalError(f"{empty} texts of the gold set have no tokens: remove them")
        windows = [window for each in cut for window in each]
        row_of = self._rows(windows, batching(windows), texts.pad_id, stage)
        rows = np.stack([_mean_row(each, row_of) for each in cut])
        finite = np.isfinite(rows)
        return RowsRun(
            rows=np.where(finite, rows, np.float32(0)),
            not_finite=int((~finite).sum()),
            lengths_tokens=texts.lengths_tokens,
            windows=len(windows),
            runs=len(batching(windows)),
        )

    def _rows(
        self, windows: list[Window], batches: list[list[Window]], pad_id: int, stage: str
    ) -> dict[Window, Float32Array]:
        rows: dict[Window, Float32Array] = {}
        with ThreadPoolExecutor(self._concurrency) as executor:
            outputs = executor.map(lambda batch: self._output(batch, pad_id), batches)
            for batch, output in zip(batches, outputs, strict=True):
                rows.update(zip(batch, output, strict=True))
                self._progress(stage, len(rows), len(windows))
        return rows

    def _output(self, windows: list[Window], pad_id: int) -> Float32Array:
        """`float32 [windows, values]`."""
        variant = self._model.variant
        try:
            (rows,) = self._session.run([_ROWS_OUTPUT], variant.feeds(windows, pad_id, self._reads))
        except SESSION_ERRORS as error:
            raise ModelError(f"{variant.name} does not run: {error}") from error
        return rows


def _mean_row(windows: list[Window], row_of: dict[Window, Float32Array]) -> Float32Array:
    return pool([OwnedRow(each.own_start, each.own_stop - each.own_start, row_of[each]) for each in windows], "mean")


Batches = list[list[Window]]
Batching = Callable[[Sequence[Window]], Batches]


def mix_lengths(windows: Sequence[Window], max_tokens: int) -> Batches:
    """Short and long windows together, always in the same order. Much padding makes this the worst case of a worker."""
    order = np.random.default_rng(0).permutation(len(windows))
    return in_order((windows[index] for index in order), max_tokens)


COMPOSITIONS: tuple[tuple[str, Batching], ...] = (
    ("alone", lambda windows: [[window] for window in windows]),
    ("by length, 512 tokens", partial(by_length, max_tokens=512)),
    ("by length, 4,096 tokens", partial(by_length, max_tokens=4096)),
    ("mixed lengths, 2,048 tokens", partial(mix_lengths, max_tokens=2048)),
)
"""The ways to make batches, by name. The later ways are compared with the first."""
USUAL = 1
"""The index of the way for which F1 is measured, the nearest to a worker's."""
