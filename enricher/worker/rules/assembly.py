"""Batch results -> outcomes of articles.

A ticket collects what the heads say about its windows, about each token from the window that owns it. After the last window
the whole article is decoded at once, so that no entity is cut, doubled or merged between two windows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from enricher.worker.records import (
    BatchResult,
    Classification,
    DeadLetter,
    Embedding,
    EnrichedRecord,
    Entity,
    Owned,
    RunOutput,
    TaskReport,
    Ticket,
    WindowFailure,
)
from enricher.worker.rules.branches import Branch
from enricher.worker.rules.heads import ClassHead, EmbeddingHead, EntityHead, Head, Keep, is_for
from enricher.worker.rules.windowing import coverage_of

_BYTES_AS_TEXT = 3
"""A vector's number takes 4 bytes, and about so many times that as text, in which finished records keep it."""
NER = "ner"
"""What the task of a worker without tasks in its settings is called, also in its metrics."""


def settle(result: BatchResult, heads: Sequence[Head], keep: Keep | None = None) -> int:
    """Store a batch's answers in its tickets; finish tickets that are complete or have a failed window.

    Returns the memory of the vectors in finished records, which is also added to their tickets' `unpacked_bytes`.
    """
    for failure in result.failures:
        ticket = failure.window.ticket
        if ticket.live and _matters(failure, heads):
            ticket.finish(DeadLetter("inference", failure.error_type, failure.message))
    return sum([take(run, heads, keep) for run in result.runs])


def _matters(failure: WindowFailure, heads: Sequence[Head]) -> bool:
    """Whether a head failed that is for the article."""
    article = failure.window.ticket.article
    return failure.heads is None or article is None or any(is_for(heads[each], article) for each in failure.heads)


def take(run: RunOutput, heads: Sequence[Head], keep: Keep | None = None) -> int:
    """Store the answers of one run; finish tickets that are complete. Returns what `settle` does."""
    held_bytes = 0
    pairs = [*zip(heads, run.heads, strict=True)]
    for index, (window, start) in enumerate(zip(run.windows, run.starts, strict=True)):
        ticket = window.ticket
        if not ticket.live:
            continue
        ticket.answers.append([head.owned(output, window, index, start) for head, output in pairs])
        ticket.windows_left -= 1
        if ticket.windows_left == 0:
            held_bytes += finish_enriched(ticket, heads, keep)
    return held_bytes


def finish_enriched(ticket: Ticket, heads: Sequence[Head], keep: Keep | None = None) -> int:
    """Finish a ticket about whose windows, if any, the heads have all answered; the last branch also finishes its trunk.

    Returns what `settle` does.
    """
    trunk = ticket.trunk if isinstance(ticket, Branch) else None
    record = _record(ticket, heads)
    held_bytes = _BYTES_AS_TEXT * sum([each.vector.nbytes for each in record.embeddings])
    (trunk.ticket if trunk else ticket).unpacked_bytes += held_bytes
    ticket.finish(keep(record) if keep and not trunk else record)
    # The ticket may wait behind a slower one, and needs its arrays no longer.
    ticket.answers, ticket.tokens = [], None
    if trunk and (joined := trunk.joined(keep)):
        trunk.ticket.finish(joined)
    return held_bytes


def _record(ticket: Ticket, heads: Sequence[Head]) -> EnrichedRecord:
    """The answers of a pass's heads for an article."""
    article = ticket.article
    assert article is not None
    coverage = coverage_of(ticket)
    by_head: Sequence[list[Owned]] = [*map(list, zip(*ticket.answers, strict=True))] or [[] for _ in heads]
    entities: list[Entity] = []
    classifications: list[Classification] = []
    embeddings: list[Embedding] = []
    tasks: list[TaskReport] = []
    labels: dict[tuple[str, str], int] = {}
    for head, answers in zip(heads, by_head, strict=True):
        if head.task is not None:
            runs = is_for(head, article)
            tasks.append(TaskReport(head.task, coverage if runs else None))
            if not runs:
                continue
        match head:
            case EntityHead():
                found = head.entities(ticket, answers)
                entities = [*entities, *found] if entities else found
                _count(found, head.task.name if head.task else NER, labels)
            case ClassHead():
                classifications += (classes := head.classifications(answers))
                _count(classes, head.task.name, labels)
            case EmbeddingHead():
                if embedding := head.embedding(answers):
                    embeddings.append(embedding)
    return EnrichedRecord(article, entities, coverage, classifications, embeddings, tasks, labels)


def _count(found: Iterable[Entity | Classification], task: str, labels: dict[tuple[str, str], int]) -> None:
    for each in found:
        key = task, each["label"]
        labels[key] = labels.get(key, 0) + 1
