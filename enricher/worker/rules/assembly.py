"""Batch results -> outcomes of articles.

A ticket collects the answers of the heads about its windows; for each token, that of the window that owns it. After the last
window the whole article is decoded at once, so that no entity is cut, doubled or merged between two windows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from enricher.worker.heads import EntityHead, Head, is_for
from enricher.worker.heads.head import Findings
from enricher.worker.records import (
    BatchResult,
    DeadLetter,
    EnrichedRecord,
    Keep,
    Owned,
    RunOutput,
    TaskReport,
    Ticket,
    WindowFailure,
)
from enricher.worker.rules.windowing import coverage_of


def store_answers(result: BatchResult, heads: Sequence[Head], keep: Keep | None = None) -> int:
    """Store a batch's answers in its tickets; finish those that are complete or have a failed window.

    Returns the memory of vectors and written entities in finished records, which is also added to their tickets'
    `unpacked_bytes`.
    """
    for failure in result.failures:
        ticket = failure.window.ticket
        if ticket.live and _matters(failure, heads):
            ticket.finish(DeadLetter("inference", failure.error_type, failure.message))
    return sum([take(run, heads, keep) for run in result.runs])


def _matters(failure: WindowFailure, heads: Sequence[Head]) -> bool:
    """Whether one of the heads that failed is for the article."""
    article = failure.window.ticket.article
    return failure.heads is None or article is None or any(is_for(heads[each], article) for each in failure.heads)


def take(run: RunOutput, heads: Sequence[Head], keep: Keep | None = None) -> int:
    """Store the answers of one run; finish tickets that are complete. Returns what `store_answers` does."""
    held_bytes = 0
    assert len(heads) == len(run.heads), "each head has an output"
    for index, (window, start) in enumerate(zip(run.windows, run.starts, strict=True)):
        ticket = window.ticket
        if not ticket.live:
            continue
        ticket.answers.append([output.owned_by(window, index, start) for output in run.heads])
        ticket.windows_left -= 1
        if ticket.windows_left == 0:
            held_bytes += finish_enriched(ticket, heads, keep)
    return held_bytes


def finish_enriched(ticket: Ticket, heads: Sequence[Head], keep: Keep | None = None) -> int:
    """Finish a ticket about whose windows, if any, the heads have all answered. Returns what `store_answers` does."""
    record, held_bytes = _record(ticket, heads)
    outcome = keep(record) if keep else record
    if isinstance(outcome, EnrichedRecord):
        held_bytes += outcome.entities_bytes
    ticket.unpacked_bytes += held_bytes
    ticket.finish(outcome)
    return held_bytes


def _record(ticket: Ticket, heads: Sequence[Head]) -> tuple[EnrichedRecord, int]:
    """The answers of the heads for an article, and the memory of findings that take much."""
    article = ticket.article
    assert article is not None
    coverage = coverage_of(ticket)
    by_head: Sequence[list[Owned]] = [*map(list, zip(*ticket.answers, strict=True))] or [[] for _ in heads]
    found: dict[str, Findings] = {}
    tasks: list[TaskReport] = []
    labels: dict[tuple[str, str], int] = {}
    held_bytes = 0
    for head, answers in zip(heads, by_head, strict=True):
        runs = is_for(head, article)
        tasks.append(TaskReport(head.task, coverage if runs else None))
        if not runs:
            continue
        mine, field = head.find(ticket, answers), head.listed_in
        found[field] = [*found[field], *mine] if field in found else mine
        held_bytes += head.held_bytes(mine)
        if head.labelled:
            _count(mine, head.task.name, labels)
    entities = found.pop(EntityHead.listed_in, [])
    return EnrichedRecord(article, entities, coverage, tasks, found, labels), held_bytes


def _count(found: Iterable[Any], task: str, labels: dict[tuple[str, str], int]) -> None:
    for each in found:
        key = task, each["label"]
        labels[key] = labels.get(key, 0) + 1
