"""Heads turn a model's output into findings about an article. A worker has one encoder, and a head for each task.

Each kind has a file with everything that a worker, its records and the commands need to know of it; head.py declares what
that is. A kind is added by its file and by its line in `KINDS`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from enricher.worker.heads.classification import ClassHead, RegressionHead
from enricher.worker.heads.embedding import EmbeddingHead
from enricher.worker.heads.head import (
    TOKENS,
    Findings,
    Head,
    HeadFiles,
    HeadSpec,
    Layers,
    Reads,
    is_for,
    is_unmeasured,
    reads_of,
)
from enricher.worker.heads.ner import NER, EntityHead
from enricher.worker.records import TaskReport

KINDS: dict[str, type[Head]] = {head.kind: head for head in (EntityHead, ClassHead, EmbeddingHead, RegressionHead)}
"""All kinds by name, in the order of their lists in records. A checkpoint is of the last kind that recognises it."""


def kind_of_field(field: str) -> type[Head]:
    """The kind whose findings a field of the record lists."""
    return next(kind for kind in KINDS.values() if kind.listed_in == field)


def kinds_in_records(tasks: Collection[str]) -> Iterator[type[Head]]:
    """The kinds that have a list beside the entities, in records of a worker whose `tasks` are of these kinds."""
    return (
        kind
        for name, kind in KINDS.items()
        if kind.listed_in != EntityHead.listed_in and (kind.every_record or name in tasks)
    )


def principal(tasks: Sequence[TaskReport]) -> TaskReport:
    """The task whose model and coverage a record names: the first that ran, leading kinds before other kinds.

    If no task ran, it is the first one.
    """
    if len(tasks) == 1:
        return tasks[0]
    ran = [report for report in tasks if report.coverage is not None]
    return next((report for report in ran if KINDS[report.task.kind].leads), (ran or tasks)[0])
