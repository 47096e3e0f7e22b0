"""Batch results -> outcomes of articles.

A ticket collects the labels of its windows, each token's from the window that owns it. After the last window the whole
article is decoded at once, so that no entity is cut, doubled or merged between two windows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from enricher.core.decoding import LabelScheme, decode_entities
from enricher.core.windowing import coverage_of
from enricher.records import Article, BatchResult, DeadLetter, EnrichedRecord, Entity, OwnedLabels, RunLabels, Ticket

Keep = Callable[[Article, list[Entity]], Sequence[Entity]]
"""Converts entities to the form in which they are kept until they are published."""


def settle(result: BatchResult, scheme: LabelScheme, keep: Keep | None = None) -> None:
    """Store a batch's labels in its tickets; finish tickets that are complete or have a failed window."""
    for failure in result.failures:
        if failure.window.ticket.live:
            failure.window.ticket.finish(DeadLetter("inference", failure.error_type, failure.message))
    for run in result.runs:
        take(run, scheme, keep)


def take(run: RunLabels, scheme: LabelScheme, keep: Keep | None = None) -> None:
    """Store the labels of one run; finish tickets that are complete."""
    labels, scores = run.labels, run.scores
    for window, start in zip(run.windows, run.starts, strict=True):
        ticket = window.ticket
        if not ticket.live:
            continue
        owned = window.owned_tokens(start)
        ticket.answers.append(OwnedLabels(window.own_start, labels[owned], scores[owned]))
        ticket.windows_left -= 1
        if ticket.windows_left == 0:
            finish_enriched(ticket, scheme, keep)


def finish_enriched(ticket: Ticket, scheme: LabelScheme, keep: Keep | None = None) -> None:
    """Finish a ticket whose windows, if any, are all labelled."""
    assert ticket.article is not None
    found = decode_entities(ticket, scheme)
    entities = keep(ticket.article, found) if keep else found
    ticket.finish(EnrichedRecord(ticket.article, entities, coverage_of(ticket)))
    # The ticket may wait behind a slower one, and needs its arrays no longer.
    ticket.answers, ticket.tokens = [], None
