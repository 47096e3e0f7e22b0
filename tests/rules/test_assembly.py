"""A run's arrays hold windows of many articles, and junk between them: each article gets what its own windows said.

And what a finished record keeps: its form, its coverage, its memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from rules.building import raw, spans_of_words
from support.answers import WindowLabels, batch_result

from enricher.worker.articles.record_values import WrittenEntities, serialise_findings
from enricher.worker.heads import EntityHead
from enricher.worker.records import (
    Article,
    Batch,
    BatchResult,
    Coverage,
    DeadLetter,
    EnrichedRecord,
    RunOutput,
    Ticket,
    TokenizedArticle,
    TokenizedField,
    TokenLabels,
    Window,
    WindowFailure,
)
from enricher.worker.rules.assembly import finish_enriched, store_answers
from enricher.worker.rules.windowing import WindowCutter

LABELS = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
HEADS = (EntityHead.of(LABELS),)
CUTTER = WindowCutter(7, 2, before=(101,), after=(102,))


def cut(words: int) -> tuple[Ticket, list[Window]]:
    """A ticket, and its windows of five words, each of which is a letter and a token."""
    body = " ".join("a" * words)
    ticket = Ticket(raw(0), 0.0, Article("id", "", body))
    field = TokenizedField("body", np.zeros(words, np.int32), spans_of_words(body))
    return ticket, CUTTER.cut(ticket, TokenizedArticle((field,)), 0.0)


@dataclass(frozen=True, slots=True)
class Truth:
    """An article whose every word is a letter and a token, with the right labels."""

    ticket: Ticket
    windows: list[Window]
    labels: list[int]

    def spans(self) -> list[tuple[int, int, str]]:
        """The rule, word by word: word `n` stands at `2 n`."""
        spans: list[tuple[int, int, str]] = []
        for word, label in enumerate(LABELS[label] for label in self.labels):
            if label == "O":
                continue
            start = 2 * word
            if spans and label == f"I-{spans[-1][2]}" and spans[-1][1] == start - 1:
                start = spans.pop()[0]
            spans.append((start, 2 * word + 1, label[2:]))
        return spans


@st.composite
def truths(draw: st.DrawFn) -> Truth:
    """Articles of one window and of several."""
    labels = draw(st.lists(st.integers(0, len(LABELS) - 1), min_size=1, max_size=25))
    return Truth(*cut(len(labels)), labels)


@dataclass(frozen=True, slots=True)
class Lot:
    """What happens to articles: batches of their windows in any order and company, and windows that fail."""

    truths: list[Truth]
    batches: list[list[Window]]
    failing: set[int]
    """Windows by `id`."""
    forgotten: dict[int, int]
    """How many batches come back before a ticket is forgotten, by its index."""


@st.composite
def lots(draw: st.DrawFn) -> Lot:
    """Some of everything."""
    articles = draw(st.lists(truths(), min_size=1, max_size=5))
    windows = draw(st.permutations([window for article in articles for window in article.windows]))
    batches, rest = [], list(windows)
    while rest:
        size = draw(st.integers(1, len(rest)))
        batches.append(rest[:size])
        rest = rest[size:]
    failing = draw(st.sets(st.sampled_from([id(window) for window in windows]), max_size=2))
    forgotten = draw(st.dictionaries(st.integers(0, len(articles) - 1), st.integers(0, len(batches)), max_size=2))
    return Lot(articles, batches, failing, forgotten)


def answered(batch: list[Window], lot: Lot, dice: np.random.Generator) -> BatchResult:
    """The right labels where a window owns tokens; elsewhere, and between windows, any label with a NaN for its score."""
    right = {id(truth.ticket): truth.labels for truth in lot.truths}
    gaps = dice.integers(0, 4, len(batch) + 1)
    starts = (np.cumsum([len(window.ids) for window in batch]) - [len(window.ids) for window in batch]) + np.cumsum(
        gaps
    )[:-1]
    total = int(sum(len(window.ids) for window in batch) + gaps.sum())
    labels, scores = dice.integers(0, len(LABELS), total).astype(np.int32), np.full(total, np.nan, np.float32)
    for window, start in zip(batch, starts.tolist(), strict=True):
        shift = start + window.specials_before - window.start
        owned = slice(window.own_start + shift, window.own_stop + shift)
        labels[owned] = right[id(window.ticket)][window.own_start : window.own_stop]
        scores[owned] = 0.5
    good = [place for place, window in enumerate(batch) if id(window) not in lot.failing]
    run = RunOutput([batch[place] for place in good], [starts[place] for place in good], [TokenLabels(labels, scores)])
    failures = [WindowFailure(window, "Broken", "it is") for window in batch if id(window) in lot.failing]
    return BatchResult(Batch(tuple(batch)), [run], failures)


@given(lots(), st.integers(0, 2**32))
def test_every_article_has_the_entities_of_its_own_labels(lot: Lot, seed: int) -> None:
    """In whatever order and company its batches come back. One that failed is a dead letter, a forgotten one is nothing."""
    dice = np.random.default_rng(seed)
    finished_before: set[int] = set()
    for number, batch in enumerate(lot.batches):
        for index, after in lot.forgotten.items():
            if after == number:
                lot.truths[index].ticket.forgotten = True
                finished_before |= {index} if lot.truths[index].ticket.outcome else set()
        store_answers(answered(batch, lot, dice), HEADS)
    for index, truth in enumerate(lot.truths):
        outcome = truth.ticket.outcome
        if truth.ticket.forgotten and index not in finished_before:
            assert outcome is None
        elif any(id(window) in lot.failing for window in truth.windows):
            assert outcome == DeadLetter("inference", "Broken", "it is")
        else:
            assert isinstance(outcome, EnrichedRecord)
            assert truth.spans() == [(each["start"], each["end"], each["label"]) for each in outcome.entities]
            assert all(each["score"] == 0.5 for each in outcome.entities)
            assert all(window.ticket.answers == [] for window in truth.windows)


def finished(words: int, keep: Callable[[EnrichedRecord], EnrichedRecord]) -> tuple[Ticket, int]:
    """The ticket of an article that is one name, and the bytes by which its record was said to have grown."""
    ticket, windows = cut(words)
    names = [
        WindowLabels(each, np.full(len(each.ids), 2, np.int32), np.ones(len(each.ids), np.float32)) for each in windows
    ]
    return ticket, sum(store_answers(batch_result([each]), HEADS, keep) for each in names)


def test_a_record_is_kept_in_the_form_that_was_asked_for() -> None:
    """What `keep` makes of it once, after the last window. Arrays that are of no more use go before the ticket does."""
    kept: list[EnrichedRecord] = []

    def keep(record: EnrichedRecord) -> EnrichedRecord:
        kept.append(replace(record, entities=tuple(record.entities)))
        return kept[-1]

    ticket, _ = finished(20, keep)
    assert kept == [ticket.outcome]
    assert ["a " * 19 + "a"] == [entity["text"] for entity in kept[0].entities]
    assert Coverage(20, 6, truncated=False) == kept[0].coverage
    assert ([], None) == (ticket.answers, ticket.tokens)


def test_an_article_without_windows_is_enriched_at_once() -> None:
    """No tokens, no entities, no windows."""
    ticket, windows = cut(0)
    assert windows == []
    finish_enriched(ticket, HEADS)
    assert isinstance(ticket.outcome, EnrichedRecord)
    assert [] == list(ticket.outcome.entities)
    assert (0, 0) == (ticket.outcome.coverage.tokens, ticket.outcome.coverage.windows)


def test_the_entities_of_finished_records_count_as_memory() -> None:
    """Until they are published: an article of nothing but names has many times its own size of them."""
    ticket, held_bytes = finished(20, serialise_findings)
    assert isinstance(ticket.outcome, EnrichedRecord)
    assert isinstance(ticket.outcome.entities, WrittenEntities)
    assert len(ticket.outcome.entities.json) == held_bytes == ticket.unpacked_bytes
