"""Scores a model on a gold set: precision, recall and F1, by label and by length, with the runs and readers of the gate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from enricher.errors import SettingsError
from enricher.worker.heads import EntityHead
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.workshop.gate.batches import COMPOSITIONS, USUAL
from enricher.workshop.gate.classes import ClassScale, class_counts
from enricher.workshop.gate.gold import read_classes, read_gold
from enricher.workshop.gate.kinds import YARDSTICKS
from enricher.workshop.gate.measure import length_buckets
from enricher.workshop.gate.runs import tokenize_texts
from enricher.workshop.gate.scoring import CountArray, count_by_text, labels_of
from enricher.workshop.gate.shares import Score, score

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from enricher.worker.heads import HeadSpec
    from enricher.worker.inference.run.model import PreparedModel
    from enricher.workshop.gate.gold import GoldSet, GoldText
    from enricher.workshop.gate.runs import Progress, RowsRun, VariantRun


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The scores of one model on one gold set. `not_judged`: labels that the model gave, but no gold text has."""

    model_name: str
    model_digest: str
    variant: str
    kind: str
    gold_name: str
    gold_digest: str
    texts: int
    windows: int
    not_finite: int
    overall: Score
    by_label: tuple[Score, ...]
    by_length: tuple[Score, ...]
    not_judged: tuple[str, ...]

    @property
    def scores(self) -> tuple[Score, ...]:
        """All scores, the overall one first."""
        return (self.overall, *self.by_label, *self.by_length)

    @property
    def remarks(self) -> list[str]:
        """Sentences about facts that a reader might overlook."""
        remarks = []
        if self.not_judged:
            remarks.append(f"Not judged, because no text of the gold set has the label: {', '.join(self.not_judged)}.")
        if not self.overall.predicted:
            remarks.append("The model found nothing in these texts, so it has no precision.")
        if self.not_finite:
            remarks.append(f"{self.not_finite:,} numbers of the model are NaN or infinite.")
        return remarks


@dataclass(frozen=True, slots=True)
class _Counts:
    overall: CountArray
    by_label: dict[str, CountArray]
    not_judged: tuple[str, ...] = ()


SCORE_COLUMNS = ("", "gold", "found", "right", "precision", "recall", "F1")


def score_cells(each: Score) -> list[str]:
    """A score as text, a cell for each of `SCORE_COLUMNS`."""
    counts = [f"{count:,}" for count in (each.expected, each.predicted, each.right)]
    return [
        each.name,
        *counts,
        *("-" if share is None else str(share) for share in (each.precision, each.recall, each.f1)),
    ]


def gold_of(heads: Sequence[HeadSpec], path: Path) -> GoldSet:
    """The gold set for heads of one kind. At least one of them must know each of its labels. Raises FatalError."""
    require_labels(heads)
    return _MEASURES[heads[0].kind].gold(heads, path)


def labels_of_findings(head: HeadSpec) -> tuple[str, ...]:
    """The labels of a head's findings, each once; those of entities are without their positions."""
    return _MEASURES[head.kind].labels(head)


def require_labels(heads: Sequence[HeadSpec]) -> None:
    """Raise SettingsError for a head whose findings have no labels, or if the heads are of several kinds."""
    kinds = [head.kind for head in heads]
    if other := [kind for kind in kinds if kind not in _MEASURES]:
        raise SettingsError(
            f"the model is for {other[0]}: only entities and classes are measured. `enricher model check` compares vectors"
        )
    if len(set(kinds)) > 1:
        raise SettingsError(f"the models find different things ({', '.join(kinds)}), so nothing can be compared")


def evaluate(model: PreparedModel, gold: GoldSet, progress: Progress) -> Evaluation:
    """Run all texts and count. Blocks. Raises ModelError, FatalError."""
    checkpoint, kind = model.checkpoint, model.checkpoint.head.kind
    texts = tokenize_texts(checkpoint, ArticleTokenizer(checkpoint), gold.texts)
    run = YARDSTICKS[kind].runner(model, progress).run(texts, COMPOSITIONS[USUAL][1], model.variant.name)
    counted = _MEASURES[kind].count(checkpoint.head, gold.texts, run)
    return Evaluation(
        model_name=checkpoint.name,
        model_digest=checkpoint.digest,
        variant=model.variant.name,
        kind=kind,
        gold_name=gold.name,
        gold_digest=gold.digest,
        texts=len(gold.texts),
        windows=run.windows,
        not_finite=run.not_finite,
        overall=score("all", counted.overall),
        by_label=tuple(score(label, counts) for label, counts in counted.by_label.items()),
        by_length=tuple(
            score(name, counted.overall[members]) for name, members in length_buckets(texts.lengths_tokens)
        ),
        not_judged=counted.not_judged,
    )


def _count_entities(_head: HeadSpec, gold: Sequence[GoldText], run: VariantRun) -> _Counts:
    """Count exact spans. As in the gate, entities with labels that the gold set does not have are not judged."""
    expected = [text.entities for text in gold]
    known, given = labels_of(expected), labels_of(run.entities)
    judged = [[span for span in spans if span.label in known] for spans in run.entities]
    by_label = {label: count_by_text(judged, expected, label) for label in known}
    return _Counts(count_by_text(judged, expected), by_label, tuple(sorted({*given} - {*known})))


def _count_classes(head: HeadSpec, gold: Sequence[GoldText], run: RowsRun) -> _Counts:
    scale = ClassScale(head, 0.0)
    given, truth = scale.classes_of(run.rows), scale.truth(gold)
    assert truth is not None, "every text was read with its classes"
    counts = {label: class_counts(given[:, at], truth[:, at]) for at, label in enumerate(head.labels)}
    overall: CountArray = np.sum([*counts.values()], axis=0)
    return _Counts(overall, {label: each for label, each in counts.items() if each.any()})


def _entity_gold(heads: Sequence[HeadSpec], path: Path) -> GoldSet:
    return read_gold(path, sorted({label for head in heads for label in EntityHead.labels_of(head)}))


@dataclass(frozen=True, slots=True)
class _Measure:
    """One kind of head whose findings have labels."""

    gold: Callable[[Sequence[HeadSpec], Path], GoldSet]
    labels: Callable[[HeadSpec], tuple[str, ...]]
    count: Callable[[HeadSpec, Sequence[GoldText], Any], _Counts]


_MEASURES = {
    "ner": _Measure(_entity_gold, EntityHead.labels_of, _count_entities),
    "classification": _Measure(
        lambda heads, path: read_classes(path, heads[0]), lambda head: head.labels, _count_classes
    ),
}
