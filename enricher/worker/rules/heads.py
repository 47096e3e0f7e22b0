"""Heads: what is made of a model's output for one article. A pass has one encoder and the heads of all tasks that share it.

Each head turns its part of a run's output into answers per window, and those of all windows into what the record says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from enricher.worker.records import (
    Article,
    Classification,
    Embedding,
    EnrichedRecord,
    Entity,
    Float32Array,
    HeadOutput,
    Owned,
    OwnedLabels,
    OwnedRow,
    TaskCard,
    Ticket,
    TokenLabels,
    Window,
    WindowRows,
)
from enricher.worker.rules.decoding import SCORE_STEPS, LabelScheme, decode_entities
from enricher.worker.rules.languages import Languages
from enricher.worker.rules.pooling import pooled

Keep = Callable[[EnrichedRecord], EnrichedRecord]
"""Converts a record to the form in which it is kept until it is published."""


@dataclass(frozen=True, slots=True)
class EntityHead:
    """Token classification. `task`: None for a worker without tasks in its settings, whose records do not name any.

    `languages`: None if it is for all articles. `names_task`: its entities carry the name of the task, because the worker
    has several tasks that find entities.
    """

    scheme: LabelScheme
    task: TaskCard | None = None
    languages: Languages | None = None
    names_task: bool = False

    @classmethod
    def of(
        cls,
        labels: Sequence[str],
        task: TaskCard | None = None,
        languages: Languages | None = None,
        *,
        names_task: bool = False,
    ) -> EntityHead:
        """The head with these label names."""
        assert task is not None or not (languages or names_task), "only a task has languages and a name"
        return cls(LabelScheme.from_labels(labels), task, languages, names_task)

    def owned(self, output: HeadOutput, window: Window, _index: int, start: int) -> OwnedLabels:
        """The labels of the tokens that `window` owns; its first token is at `start` in the output."""
        assert isinstance(output, TokenLabels)
        tokens = window.owned_tokens(start)
        return OwnedLabels(window.own_start, output.labels[tokens], output.scores[tokens])

    def entities(self, ticket: Ticket, answers: list[Owned]) -> list[Entity]:
        """The entities of an article whose windows are all labelled."""
        found = decode_entities(ticket, answers, self.scheme)  # type: ignore[arg-type]
        if self.names_task and self.task is not None:
            for entity in found:
                entity["task"] = self.task.name
        return found


@dataclass(frozen=True, slots=True)
class ClassHead:
    """Sequence classification. `multi_label`: every label above `threshold` holds; else the most probable one does."""

    task: TaskCard
    labels: tuple[str, ...]
    multi_label: bool = False
    threshold: float = 0.5
    languages: Languages | None = None

    def owned(self, output: HeadOutput, window: Window, index: int, _start: int) -> OwnedRow:
        """The logits of the window at `index` of the run."""
        return _row(output, window, index)

    def classifications(self, answers: list[Owned]) -> list[Classification]:
        """The classes of an article, the most probable first; none if it has no tokens."""
        row = article_row(answers, self.task)
        if row is None:
            return []
        shares = probabilities(row, multi_label=self.multi_label)
        ranked = sorted(zip(shares, self.labels, strict=True), key=lambda each: -each[0])
        chosen = [each for each in ranked if each[0] >= self.threshold] if self.multi_label else ranked[:1]
        return [
            {"task": self.task.name, "label": label, "score": round(share * SCORE_STEPS) / SCORE_STEPS}
            for share, label in chosen
        ]


@dataclass(frozen=True, slots=True)
class EmbeddingHead:
    """Sentence embeddings. `normalised`: vectors have length 1."""

    task: TaskCard
    normalised: bool = False
    languages: Languages | None = None

    def owned(self, output: HeadOutput, window: Window, index: int, _start: int) -> OwnedRow:
        """The vector of the window at `index` of the run."""
        return _row(output, window, index)

    def embedding(self, answers: list[Owned]) -> Embedding | None:
        """The vector of an article; None if it has no tokens."""
        row = article_row(answers, self.task)
        if row is None:
            return None
        if self.normalised and (length := float(np.linalg.norm(exact := row.astype(np.float64)))):
            row = (exact / length).astype(np.float32)
        return Embedding(self.task, row)


Head = EntityHead | ClassHead | EmbeddingHead


def is_for(head: Head, article: Article) -> bool:
    """Whether a head is for an article, by its language."""
    return head.languages is None or head.languages.include(article.language)


def _row(output: HeadOutput, window: Window, index: int) -> OwnedRow:
    assert isinstance(output, WindowRows)
    return OwnedRow(window.own_start, window.own_stop - window.own_start, output.rows[index])


def article_row(answers: Sequence[Owned], task: TaskCard) -> Float32Array | None:
    """The article's row, from those of its windows."""
    rows = [each for each in answers if isinstance(each, OwnedRow)]
    assert task.pooling is not None
    return pooled(rows, task.pooling) if rows else None


def probabilities(logits: Float32Array, *, multi_label: bool) -> list[float]:
    """Label probabilities: sigmoid if several labels may hold, else softmax."""
    shares: list[float] = shares_of(logits, multi_label=multi_label).tolist()
    return shares


def shares_of(logits: Float32Array, *, multi_label: bool) -> npt.NDArray[np.float64]:
    """The probabilities of labels, which are the last axis of `logits`."""
    exact = logits.astype(np.float64)
    if multi_label:
        # Far before `exp` overflows, a sigmoid is 0 or 1 to four decimals.
        alone: npt.NDArray[np.float64] = 1 / (1 + np.exp(-exact.clip(-500, 500)))
        return alone
    values = np.exp(exact - exact.max(axis=-1, keepdims=True))
    shares: npt.NDArray[np.float64] = values / values.sum(axis=-1, keepdims=True)
    return shares
