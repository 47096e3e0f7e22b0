"""Enriched records that tests write and read: of one model, and of several tasks that fit together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, get_args

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from enricher.worker.articles import Encoder, RecordWriter, record_writer
from enricher.worker.contracts import RecordFormat
from enricher.worker.records import (
    Article,
    Classification,
    Coverage,
    Embedding,
    EnrichedRecord,
    Entity,
    ModelCard,
    Outcome,
    Pooling,
    RawRecord,
    Skipped,
    TaskCard,
    TaskKind,
    TaskReport,
    Ticket,
    Tombstone,
)
from support.properties import any_text
from tools.worker_parts import only_task

VectorFormat = Literal["list", "float16"]
MODEL = ModelCard("newswire-minilm", "sha256:6a1f0c", "int8")


def article_in(found: Article | Tombstone | Skipped) -> Article:
    """What a reader returned, which is an article."""
    assert isinstance(found, Article)
    return found


def plain_record(
    article: Article,
    entities: Sequence[Entity],
    coverage: Coverage,
    *,
    labels: Mapping[tuple[str, str], int] | None = None,
) -> EnrichedRecord:
    """The record in which the model found these entities."""
    return EnrichedRecord(article, entities, coverage, [TaskReport(only_task(MODEL), coverage)], labels=labels or {})


def finished(raw: RawRecord, outcome: Outcome) -> Ticket:
    """The ticket of a record, with its outcome."""
    ticket = Ticket(raw, arrived_s=0.0)
    ticket.finish(outcome)
    return ticket


def writer_of(output_format: RecordFormat, schema_id: int = 1) -> RecordWriter:
    """Writes records as a worker does that has registered its schema."""
    writer = record_writer(output_format)
    if writer.schema:
        writer.begin_with(schema_id)
    return writer


def encoder_of(output_format: RecordFormat = "json", **changes: Any) -> Encoder:  # noqa: ANN401  as the encoder takes
    """An encoder whose clock stands still, for records of a megabyte, but for `changes`."""
    sizes = {"max_record_bytes": 10**6, "max_dead_letter_bytes": 10**6}
    usual: dict[str, Any] = {"version": "0.1.0", "clock": lambda: 0.0, "writer": writer_of(output_format), **sizes}
    return Encoder(**usual | changes)


OTHER = ModelCard("news-topics", "sha256:77c02e", "fp32")
SEEN = Coverage(tokens=5, windows=1, truncated=False)
NAMES = TaskCard("names", "ner", MODEL)
TOPIC = TaskCard("topic", "classification", OTHER, "mean")
SIMILAR = TaskCard("similar", "embedding", OTHER, "mean")
HALVES = TaskCard("halves", "embedding", OTHER, "first_window", "float16")
VECTOR = np.array([0.12573022, -0.13210486, 0.64042264, 0.104900114], np.float32)


def record_of_tasks() -> EnrichedRecord:
    """A record of four tasks, all of which ran."""
    entity = Entity(field="body", start=0, end=4, text="Oslo", label="LOC", score=0.9876)
    return EnrichedRecord(
        Article("a-1", "", "Oslo, 1905", {"language": "nb"}),
        [entity],
        SEEN,
        [TaskReport(card, SEEN) for card in (NAMES, TOPIC, SIMILAR, HALVES)],
        {
            "classifications": [Classification(task="topic", label="history", score=0.75)],
            "embeddings": [Embedding(SIMILAR, VECTOR), Embedding(HALVES, VECTOR)],
        },
    )


def unwritable_record() -> EnrichedRecord:
    """A record that no format can have: the vector of its task `similar` is not finite."""
    return replace(record_of_tasks(), findings={"embeddings": [Embedding(SIMILAR, np.full(3, np.inf, np.float32))]})


_names = any_text(min_size=1, max_size=6)
_cards = st.builds(ModelCard, _names, _names, st.sampled_from(["fp32", "fp16"]))
_coverages = st.none() | st.integers(1, 9).map(lambda n: Coverage(n * 7, n, truncated=False))
_poolings: st.SearchStrategy[Pooling] = st.sampled_from(get_args(Pooling))


@st.composite
def records_of_tasks(draw: st.DrawFn) -> EnrichedRecord:
    """Draw a record of any tasks; float32 vectors have any finite values, float16 ones those that float16 can hold."""
    names = draw(st.lists(_names, min_size=1, max_size=5, unique=True))
    kinds: list[TaskKind] = [draw(st.sampled_from(("ner", "classification", "embedding", "regression"))) for _ in names]
    several = kinds.count("ner") > 1
    reports: list[TaskReport] = []
    entities: list[Entity] = []
    classes: list[Classification] = []
    embeddings: list[Embedding] = []
    numbers: list[dict[str, Any]] = []
    for name, kind in zip(names, kinds, strict=True):
        form: VectorFormat = draw(st.sampled_from(get_args(VectorFormat)))
        pooling: Pooling | None = None if kind == "ner" else draw(_poolings)
        card = TaskCard(name, kind, draw(_cards), pooling, form)
        report = TaskReport(card, draw(_coverages))
        reports.append(report)
        if report.coverage is None:
            continue
        if kind == "ner":
            entity = Entity(field="body", start=0, end=4, text="Oslo", label=draw(_names), score=0.5)
            if several:
                entity["task"] = name
            entities.append(entity)
        elif kind == "classification":
            score = draw(st.integers(0, 10_000)) / 10_000
            classes.append(Classification(task=name, label=draw(_names), score=score))
        elif kind == "regression":
            value = draw(st.floats(width=32, allow_nan=False, allow_infinity=False))
            numbers.append({"task": name, "value": float(str(np.float32(value)))})
        else:
            bound = {"list": None, "float16": 65504.0}[form]
            values = st.floats(
                None if bound is None else -bound, bound, width=32, allow_nan=False, allow_infinity=False
            )
            embeddings.append(Embedding(card, draw(arrays.arrays(np.float32, st.integers(1, 9), elements=values))))
    article = Article(draw(_names), "", "Oslo, 1905")
    findings: dict[str, Sequence[Any]] = {"classifications": classes, "embeddings": embeddings, "regressions": numbers}
    return EnrichedRecord(article, entities, SEEN, reports, findings)
