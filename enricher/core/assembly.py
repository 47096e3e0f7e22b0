"""Window results -> the outcome of their article.

The labels of all windows meet in the ticket, each token's from the window that owns it; when the last window is in, the
whole article is decoded at once, so that no entity is cut, doubled or merged where two windows meet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from enricher.core.decoding import LabelScheme, decode_entities
from enricher.core.windowing import coverage_of
from enricher.records import (
    Article,
    DeadLetter,
    EnrichedRecord,
    Entity,
    InFlight,
    OwnedLabels,
    WindowFailure,
    WindowLabels,
    WindowResult,
)

Keep = Callable[[Article, list[Entity]], Sequence[Entity]]
"""In what form a record's entities wait to be published."""


def settle(result: WindowResult, scheme: LabelScheme, keep: Keep | None = None) -> None:
    """Take one window's result into its ticket; finish the ticket if that was the last one missing, or a failure."""
    ticket = result.window.ticket
    if not ticket.live:
        return
    if isinstance(result, WindowFailure):
        ticket.finish(DeadLetter("inference", result.error_type, result.message))
        return
    ticket.answers.append(_owned(result))
    ticket.windows_left -= 1
    if ticket.windows_left == 0:
        finish_enriched(ticket, scheme, keep)


def finish_enriched(ticket: InFlight, scheme: LabelScheme, keep: Keep | None = None) -> None:
    """Finish a ticket whose windows (if it has any) are all labelled."""
    assert ticket.article is not None
    found = decode_entities(ticket, scheme)
    entities = keep(ticket.article, found) if keep else found
    ticket.finish(EnrichedRecord(ticket.article, entities, coverage_of(ticket)))
    # Arrays and encodings are of no more use, and the ticket may wait a while behind a slower one.
    ticket.answers, ticket.tokens = [], None


def _owned(result: WindowLabels) -> OwnedLabels:
    window = result.window
    shift = window.specials_before - window.start
    start, stop = window.own_start + shift, window.own_stop + shift
    return OwnedLabels(window.own_start, result.labels[start:stop], result.scores[start:stop])
