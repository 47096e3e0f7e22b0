"""Gets the answers of a model about articles: from a run in the worker's pipeline, or from records that a worker wrote."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from enricher.errors import SettingsError
from enricher.worker.build.loaded_tasks import load_tasks
from enricher.worker.build.recomputation import recompute
from enricher.worker.heads import KINDS
from enricher.worker.settings import TaskSettings
from enricher.workshop.gate.scoring import EntitySpan
from enricher.workshop.scores import labels_of_findings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from enricher.worker.build.workers import ReaderOf
    from enricher.worker.inference.checkpoint.folder import Checkpoint
    from enricher.worker.records import RawRecord
    from enricher.worker.settings import Settings

_TASK = "compared"


@dataclass(frozen=True, slots=True)
class Answer:
    """The findings in one article with their texts, which are parts of the article. A class is a finding without a place."""

    findings: Mapping[EntitySpan, str]
    tokens: int
    language: str


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a run over all articles with a warm model. Processor seconds are those of all threads together."""

    articles: int
    tokens: int
    seconds: float
    processor_s: float

    @property
    def articles_per_s(self) -> float:
        """Throughput."""
        return self.articles / self.seconds

    @property
    def processor_s_per_1000(self) -> float:
        """Processor seconds for a thousand articles."""
        return 1000 * self.processor_s / self.articles


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of one model by article, None where it has none. `known`: the labels that it can give, if known."""

    name: str
    digest: str
    precision: str
    known: tuple[str, ...]
    answers: Sequence[Answer | None]
    cost: Cost | None = None

    @property
    def labels(self) -> Sequence[str]:
        """The labels that the model can give; if these are not known, those that it gave."""
        return self.known or sorted({span.label for each in self.answers if each for span in each.findings})


def run_model(
    settings: Settings, checkpoint: Checkpoint, source: str, records: Sequence[RawRecord], reader: ReaderOf | None
) -> Answers:
    """Run all records through a worker with this model alone. Blocks. Raises ModelError, SettingsError."""
    kind = checkpoint.head.kind
    tasks = load_tasks(settings_for(settings, source, kind))
    begin_s, begin_processor_s = time.perf_counter(), time.process_time()
    values = recompute(settings, tasks, records, reader=reader)
    seconds, processor_s = time.perf_counter() - begin_s, time.process_time() - begin_processor_s
    answers = [None if value is None else answer_of(orjson.loads(value), kind, None) for value in values]
    answered = [each for each in answers if each is not None]
    cost = Cost(len(answered), sum(each.tokens for each in answered), seconds, processor_s) if answered else None
    card = tasks.card
    return Answers(card.name, card.digest, card.precision, labels_of_findings(checkpoint.head), answers, cost)


def answers_in_records(
    written: Mapping[tuple[int, int], Mapping[str, Any]], articles: Sequence[RawRecord], kind: str, task: str | None
) -> Answers:
    """The answers in records that workers wrote about these articles, with unknown labels. Raises SettingsError."""
    answers: list[Answer | None] = []
    models: Counter[tuple[str, str, str]] = Counter()
    for article in articles:
        record = written[article.partition.number, article.offset]
        try:
            model = record["model"]
            models[str(model["name"]), str(model["digest"]), str(model["precision"])] += 1
            answers.append(answer_of(record, kind, task))
        except (AttributeError, KeyError, TypeError, ValueError):
            answers.append(None)
    names, digests, precisions = (
        (", ".join(dict.fromkeys(each)) for each in zip(*models, strict=True)) if models else ("",) * 3
    )
    return Answers(f"the output ({names})", digests, precisions, (), answers)


def settings_for(settings: Settings, source: str, kind: str) -> Settings:
    """The settings of a worker that serves only this model, and whose records repeat the article's language."""
    model = settings.model.model_copy(update={"source": source})
    task = TaskSettings(source=source, precision=model.precision)
    tasks = {} if KINDS[kind].serves_alone else {_TASK: task}
    output = settings.output.model_copy(update={"article": "metadata"})
    return settings.model_copy(update={"model": model, "tasks": tasks, "output": output})


def answer_of(record: Mapping[str, Any], kind: str, task: str | None) -> Answer:
    """The answer in a record. Raises SettingsError if several tasks give such findings and none is chosen.

    Raises AttributeError, KeyError, TypeError or ValueError if no worker wrote it.
    """
    found = [
        each for each in record.get(KINDS[kind].listed_in) or () if task is None or each.get("task") in {task, None}
    ]
    if len(tasks := {each.get("task") for each in found}) > 1:
        names = ", ".join(sorted(map(str, tasks)))
        raise SettingsError(f"the records have findings of several tasks ({names}): choose one with --task")
    spans = [
        EntitySpan(each.get("field", "body"), int(each.get("start", 0)), int(each.get("end", 0)), str(each["label"]))
        for each in found
    ]
    findings = {span: str(each.get("text", "")) for span, each in zip(spans, found, strict=True)}
    return Answer(findings, int(record["coverage"]["tokens"]), str(record.get("language") or ""))
