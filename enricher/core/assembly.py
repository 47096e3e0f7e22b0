"""Batch results -> the outcomes of their articles.

The labels of all windows meet in the ticket, each token's from the window that owns it; when the last window is in, the
whole article is decoded at once, so that no entity is cut, doubled or merged where two windows meet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from enricher.core.decoding import LabelScheme, decode_entities
from enricher.core.windowing import coverage_of
from enricher.records import Article, BatchResult, DeadLetter, EnrichedRecord, Entity, OwnedLabels, RunLabels, Ticket

Keep = Callable[[Article, list[Entity]], Sequence[Entity]]
"""In what form a record's entities wait to be published."""


def settle(result: BatchResult, scheme: LabelScheme, keep: Keep | None = None) -> None:
    """Take what came back for a batch into the tickets; finish those of which nothing is missing, or a window failed."""
    for failure in result.failures:
        if failure.window.ticket.live:
            failure.window.ticket.finish(DeadLetter("inference", failure.error_type, failure.message))
    for run in result.runs:
        take(run, scheme, keep)


def take(run: RunLabels, scheme: LabelScheme, keep: Keep | None = None) -> None:
    """The same for the windows of one run."""
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
    """Finish a ticket whose windows (if it has any) are all labelled."""
    assert ticket.article is not None
    found = decode_entities(ticket, scheme)
    entities = keep(ticket.article, found) if keep else found
    ticket.finish(EnrichedRecord(ticket.article, entities, coverage_of(ticket)))
    # Arrays and encodings are of no more use, and the ticket may wait a while behind a slower one.
    ticket.answers, ticket.tokens = [], None
