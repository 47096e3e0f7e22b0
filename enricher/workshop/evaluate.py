"""`enricher model evaluate`: how well a model finds the labels that people gave."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import orjson
import typer
from rich.markup import escape
from rich.table import Table

from enricher.errors import SettingsError
from enricher.worker.commands.console import Ticker, data_console, remark_console
from enricher.worker.heads import EntityHead, HeadSpec
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.run.model import PreparedModel, open_model, prepare_heads
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.records import TaskKind
from enricher.worker.runtime.devices import Precision
from enricher.worker.settings import load_settings
from enricher.worker.telemetry.logs import escape_controls
from enricher.workshop.arguments import DeviceOption, JsonOption, ModelArgument
from enricher.workshop.gate.gold import GoldSet, GoldText, read_classes, read_gold
from enricher.workshop.gate.measure import ClassScale, class_counts, length_buckets
from enricher.workshop.gate.quality_gate import YARDSTICKS
from enricher.workshop.gate.runs import COMPOSITIONS, USUAL, Progress, RowsRun, VariantRun, tokenize_texts
from enricher.workshop.gate.scoring import CountArray, Score, count_by_text, labels_of, score


def model_evaluate(
    model: ModelArgument,
    *,
    gold: Annotated[Path, typer.Option(help="Labelled texts: JSON lines or CoNLL columns (deploy/quality-gate.md).")],
    device: DeviceOption = "auto",
    precision: Annotated[Precision, typer.Option(help="Which to measure; `auto`: the worker's choice.")] = "auto",
    as_json: JsonOption = False,
) -> None:
    """Measure precision, recall and F1 of a model on labelled texts, by label and by length.

    An entity counts if start, end and label are all equal. Each figure has a 95 % interval: the wider of a bootstrap over
    the texts, which gives the same result each time, and Wilson's for so many entities. Entities are not judged if no text
    of the gold set has their label.
    """
    checkpoint = open_model(model)
    evaluation = _measure(checkpoint, gold_of(checkpoint.head, gold), device, precision)
    if as_json:
        sys.stdout.write(orjson.dumps(asdict(evaluation), option=orjson.OPT_INDENT_2).decode() + "\n")
    else:
        _print(evaluation)


def _measure(checkpoint: Checkpoint, gold: GoldSet, device: str, precision: Precision) -> Evaluation:
    """Prepare the model as a worker does, and evaluate it with progress. Raises ModelError, FatalError."""
    settings = load_settings(log_files=False).model
    prepared = prepare_heads([checkpoint], device=device, precision=precision, cache_dir=settings.cache_dir)
    with Ticker(remark_console()) as ticker:

        def progress(stage: str, done: int, windows: int) -> None:
            ticker.tick(lambda: f"{checkpoint.name}, {stage}: {done:,} of {windows:,} windows")

        return evaluate(prepared, gold, progress)


def _print(evaluation: Evaluation) -> None:
    data_console().print(text_table(SCORE_COLUMNS, map(score_cells, evaluation.scores)))
    remark_console().print(escape(f"{evaluation.model_name} ({evaluation.variant}) on {evaluation.texts:,} texts"))
    for remark in evaluation.remarks:
        remark_console().print(escape(escape_controls(remark)))


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


def text_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table of texts that come from outside: labels of models, words of articles."""
    table = Table(*columns)
    for row in rows:
        table.add_row(*(escape(escape_controls(cell)) for cell in row))
    return table


def gold_of(head: HeadSpec, path: Path) -> GoldSet:
    """The gold set for a head, which must know each of its labels. Raises SettingsError, FatalError."""
    require_labels([head])
    return _MEASURES[head.kind].gold(head, path)


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


@dataclass(frozen=True, slots=True)
class _Measure:
    """The functions that measure one kind of head whose findings have labels."""

    gold: Callable[[HeadSpec, Path], GoldSet]
    count: Callable[[HeadSpec, Sequence[GoldText], Any], _Counts]


_MEASURES: Mapping[TaskKind, _Measure] = {
    "ner": _Measure(lambda head, path: read_gold(path, sorted(EntityHead.labels_of(head))), _count_entities),
    "classification": _Measure(lambda head, path: read_classes(path, head), _count_classes),
}
