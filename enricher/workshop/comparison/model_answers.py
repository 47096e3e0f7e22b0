"""Gets the answers of a model about articles, from a run in the worker's pipeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from enricher.worker.heads import KINDS
from enricher.worker.settings import TaskSettings
from enricher.worker.wiring.loaded_tasks import load_tasks
from enricher.worker.wiring.memory_runs import recompute
from enricher.workshop.gate.scoring import EntitySpan
from enricher.workshop.scores import labels_of_findings

if TYPE_CHECKING:
    from enricher.worker.inference.checkpoint.folder import Checkpoint
    from enricher.worker.records import RawRecord
    from enricher.worker.settings import Settings
    from enricher.worker.wiring.formats import ReaderOf

_TASK = "compared"
Answer = Mapping[EntitySpan, str]
"""The findings in one article with their texts, which are parts of the article. A class is a finding without a place."""


@dataclass(frozen=True, slots=True)
class Answers:
    """The answers of a model: one for each article, None where it has none. `labels`: those that it can give."""

    name: str
    digest: str
    precision: str
    labels: tuple[str, ...]
    answers: Sequence[Answer | None]


def run_model(
    settings: Settings, checkpoint: Checkpoint, source: str, records: Sequence[RawRecord], reader: ReaderOf | None
) -> Answers:
    """Run all records through a worker with this model alone. Blocks. Raises ModelError, SettingsError."""
    kind = checkpoint.head.kind
    tasks = load_tasks(_settings_for(settings, source, kind))
    values = recompute(settings, tasks, records, reader=reader)
    answers = [None if value is None else _answer_of(orjson.loads(value), kind) for value in values]
    card = tasks.card
    return Answers(card.name, card.digest, card.precision, labels_of_findings(checkpoint.head), answers)


def _settings_for(settings: Settings, source: str, kind: str) -> Settings:
    """The settings of a worker that serves only this model."""
    model = settings.model.model_copy(update={"source": source})
    tasks = {} if KINDS[kind].serves_alone else {_TASK: TaskSettings(source=source)}
    return settings.model_copy(update={"model": model, "tasks": tasks})


def _answer_of(record: Mapping[str, Any], kind: str) -> Answer:
    return {
        EntitySpan(each.get("field", "body"), each.get("start", 0), each.get("end", 0), each["label"]): each.get(
            "text", ""
        )
        for each in record.get(KINDS[kind].listed_in) or ()
    }
