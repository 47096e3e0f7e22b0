"""Windows meet again in their article: owners decide, one failure is enough, seams are not seen, ghosts are ignored."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from rules.building import raw, spans_of_words
from support.answers import WindowLabels, batch_result

from enricher.worker.articles.record_values import WrittenEntities, serialise_findings
from enricher.worker.heads import EntityHead
from enricher.worker.records import (
    Article,
    EnrichedRecord,
    Ticket,
    TokenizedArticle,
    TokenizedField,
    Window,
)
from enricher.worker.rules.assembly import finish_enriched, store_answers
from enricher.worker.rules.windowing import WindowCutter

HEADS = (EntityHead.of(["O", "B-PER", "I-PER"]),)
CUTTER = WindowCutter(10, 4, before=(101,), after=(102,))


def cut(body: str) -> tuple[Ticket, list[Window]]:
    """The part of a ticket, and its windows of eight words; ids are the labels that an all-knowing model would give."""
    ids = [2 if word[0].isupper() else 0 for word in body.split()]
    fields = (
        TokenizedField("title", np.zeros(0, np.int32), spans_of_words("")),
        TokenizedField("body", np.array(ids, np.int32), spans_of_words(body)),
    )
    ticket = Ticket(raw(0), 0.0, Article("id", "", body))
    return ticket, CUTTER.cut(ticket, TokenizedArticle(fields), 0.0)


def answered(window: Window) -> WindowLabels:
    """The right labels where the window owns tokens, the opposite elsewhere and at special tokens."""
    right = np.where(window.ids > 2, 0, window.ids)
    labels = (2 - right).astype(np.int32)
    shift = window.specials_before - window.start
    owned = slice(window.own_start + shift, window.own_stop + shift)
    labels[owned] = right[owned]
    scores = np.full(len(labels), 0.25, np.float32)
    scores[owned] = 1.0
    return WindowLabels(window, labels, scores)


BODY = (
    "once upon a time Ada Augusta King Byron Noel Countess Of Lovelace "
    "wrote the first program for a machine of Charles Babbage"
)


@pytest.mark.parametrize("seed", range(5))
def test_only_the_owner_of_a_token_labels_it(seed: int) -> None:
    """Windows that come back in any order, with nonsense where they own nothing: every label is its owner's."""
    ticket, windows = cut(BODY)
    Random(seed).shuffle(windows)
    assert len(windows) > 2
    for window in windows[:-1]:
        store_answers(batch_result([answered(window)]), HEADS)
        assert ticket.outcome is None
    store_answers(batch_result([answered(windows[-1])]), HEADS)
    assert isinstance(ticket.outcome, EnrichedRecord)
    assert [("Ada Augusta King Byron Noel Countess Of Lovelace", 1.0), ("Charles Babbage", 1.0)] == [
        (entity["text"], entity["score"]) for entity in ticket.outcome.entities
    ]


def test_a_record_tells_what_the_model_saw_and_the_ticket_drops_the_rest() -> None:
    """Tokens and windows are counted; arrays that are of no more use are not kept while the ticket waits."""
    ticket, windows = cut(BODY)
    for window in windows:
        store_answers(batch_result([answered(window)]), HEADS)
    assert isinstance(ticket.outcome, EnrichedRecord)
    assert (len(BODY.split()), len(windows), False) == (
        ticket.outcome.coverage.tokens,
        ticket.outcome.coverage.windows,
        ticket.outcome.coverage.truncated,
    )
    assert ticket.answers == []
    assert ticket.tokens is None


def test_a_record_is_kept_in_the_form_that_was_asked_for() -> None:
    """What `keep` makes of the record, once, after the last window."""
    ticket, windows = cut(BODY)
    seen = []

    def keep(record: EnrichedRecord) -> EnrichedRecord:
        seen.append(record.article)
        return replace(record, entities=tuple(record.entities))

    for window in windows:
        store_answers(batch_result([answered(window)]), HEADS, keep)
    assert isinstance(ticket.outcome, EnrichedRecord)
    assert [ticket.article] == seen
    assert isinstance(ticket.outcome.entities, tuple)
    assert len(ticket.outcome.entities) == 2


def test_an_article_without_windows_is_enriched_at_once() -> None:
    """No tokens, no entities, no windows."""
    ticket, windows = cut("")
    assert windows == []
    finish_enriched(ticket, HEADS)
    assert isinstance(ticket.outcome, EnrichedRecord)
    assert [] == list(ticket.outcome.entities)
    assert (0, 0) == (ticket.outcome.coverage.tokens, ticket.outcome.coverage.windows)


def test_the_entities_of_finished_records_count_as_memory() -> None:
    """Until they are published: an article of nothing but names has many times its own size of them."""
    ticket, windows = cut(BODY)
    held_bytes = sum(store_answers(batch_result([answered(each)]), HEADS, serialise_findings) for each in windows)
    assert isinstance(ticket.outcome, EnrichedRecord)
    assert isinstance(ticket.outcome.entities, WrittenEntities)
    assert len(ticket.outcome.entities.json) == held_bytes == ticket.unpacked_bytes
