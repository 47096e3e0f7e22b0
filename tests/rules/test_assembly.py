"""Windows cover everything, and every token has one owner; their answers meet again in their article, and only there.

A run's arrays hold windows of many articles, and junk between them. And what a finished record keeps.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import pytest
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
from enricher.worker.rules.assembly import store_answers
from enricher.worker.rules.windowing import LENGTH_STEP_TOKENS, Span, WindowCutter, coverage_of, plan_windows

Plan = tuple[int, int, int, int]
"""Tokens of an article; content, overlap and special tokens of its windows."""


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Any article in any window size; one in two of a size that devices like, as models have."""
    specials = draw(st.integers(0, 4))
    content = draw(
        st.one_of(st.integers(1, 200), st.sampled_from([64, 96, 128, 160]).map(lambda full: full - specials))
    )
    return draw(st.integers(0, 1_500)), content, draw(st.integers(0, content - 1)), specials


@given(plans())
def test_every_token_is_owned_exactly_once(plan: Plan) -> None:
    """The owned parts follow one another without gap from the first token to the last, each inside its window."""
    windows = plan_windows(*plan)
    owned = [token for window in windows for token in range(window.own_start, window.own_stop)]
    assert list(range(plan[0])) == owned
    assert all(window.start <= window.own_start < window.own_stop <= window.stop for window in windows)


@given(plans())
def test_no_window_is_longer_than_allowed_and_none_is_a_short_rest(plan: Plan) -> None:
    """Even sizes: there is no short rest with little context. They differ by one step at most."""
    _, content, _, specials = plan
    sizes = [window.stop - window.start for window in plan_windows(*plan)]
    assert max(sizes, default=0) <= content
    assert sorted(sizes, reverse=True) == sizes
    assert max(sizes, default=0) - min(sizes, default=0) in {0, LENGTH_STEP_TOKENS}
    if len(set(sizes)) > 1:
        assert all((size + specials) % LENGTH_STEP_TOKENS == 0 for size in sizes)


@given(st.integers(0, 5_000), st.sampled_from([128, 256, 512]), st.sampled_from([0, 16, 24]))
def test_several_windows_of_a_usual_size_are_what_a_device_likes(length: int, full: int, overlap: int) -> None:
    """With its special tokens each is a multiple of the step, and all share less than a step beyond the overlap."""
    windows = plan_windows(length, full - 2, overlap, 2)
    if len(windows) > 1:
        assert all((window.stop - window.start + 2) % LENGTH_STEP_TOKENS == 0 for window in windows)
    shared = sum(left.stop - right.start for left, right in pairwise(windows))
    assert shared - max(0, len(windows) - 1) * overlap in range(LENGTH_STEP_TOKENS)


@given(plans())
def test_neighbours_share_at_least_the_overlap(plan: Plan) -> None:
    """Windows stand in order and each shares what was asked for with the next."""
    windows = plan_windows(*plan)
    assert all(left.start < right.start and left.stop - right.start >= plan[2] for left, right in pairwise(windows))


@given(plans())
def test_there_are_as_few_windows_as_possible(plan: Plan) -> None:
    """One fewer could not cover the article, even with every window full and no more overlap than asked for."""
    length, content, overlap, _ = plan
    fewer = len(plan_windows(*plan)) - 1
    reach = fewer * content - max(0, fewer - 1) * overlap
    assert reach < length or length == 0


def context(window: Span, token: int, length: int) -> float:
    """Tokens between `token` and the nearer edge of the window; the article's own edges cut nothing off."""
    before = token - window.start if window.start > 0 else float("inf")
    after = window.stop - 1 - token if window.stop < length else float("inf")
    return min(before, after)


@given(plans())
def test_a_token_belongs_to_the_window_that_sees_most_around_it(plan: Plan) -> None:
    """No other window has more context for a token than its owner, but for the one token in the middle of an odd overlap."""
    windows = plan_windows(*plan)
    for owner in windows:
        for token in range(owner.own_start, owner.own_stop):
            best = max(context(window, token, plan[0]) for window in windows if window.start <= token < window.stop)
            assert context(owner, token, plan[0]) >= best - 1


def article(title_ids: list[int], body_ids: list[int]) -> TokenizedArticle:
    """An article with these token ids."""
    none = spans_of_words("")
    return TokenizedArticle(
        (
            TokenizedField("title", np.array(title_ids, np.int32), none),
            TokenizedField("body", np.array(body_ids, np.int32), none),
        )
    )


@given(plans(), st.data())
def test_a_window_is_its_run_of_the_article_between_the_special_tokens(plan: Plan, data: st.DataObject) -> None:
    """One window or many, with any number of special tokens on either side, wherever title and body meet."""
    length, content, overlap, specials = plan
    around = list(range(100, 100 + specials))
    first_after = data.draw(st.integers(0, specials))
    before, after = around[:first_after], around[first_after:]
    ids, title_tokens = [1000 + token for token in range(length)], data.draw(st.integers(0, length))
    cutter = WindowCutter(content + len(before) + len(after), overlap, tuple(before), tuple(after))
    ticket = Ticket(raw(0), 0.0)
    windows = cutter.cut(ticket, article(ids[:title_tokens], ids[title_tokens:]), now_s=7.5)
    expected = [[*before, *ids[span.start : span.stop], *after] for span in plan_windows(*plan)]
    assert expected == [window.ids.tolist() for window in windows]
    owned = [(span.start, span.own_start, span.own_stop) for span in plan_windows(*plan)]
    assert owned == [(window.start, window.own_start, window.own_stop) for window in windows]
    assert all(window.specials_before == len(before) and window.arrived_s == 7.5 for window in windows)
    assert all(window.ids.dtype == np.int32 and window.ticket is ticket for window in windows)


@pytest.mark.parametrize(("body_tokens", "count"), [(10, 3), (0, 0)])
def test_cutting_makes_the_ticket_ready_for_its_answers(body_tokens: int, count: int) -> None:
    """It knows how many windows to wait for, how much of the article they are, and whether the tokenizer left some out."""
    ticket, title_tokens = Ticket(raw(0), 0.0), 3 if body_tokens else 0
    tokens = article([1] * title_tokens, [2] * body_tokens)
    truncated = TokenizedArticle(tokens.fields, truncated=body_tokens > 0)
    assert count == len(WindowCutter(8, 2, (101,), (102,)).cut(ticket, truncated, now_s=0.0))
    assert (count, count, []) == (ticket.windows, ticket.windows_left, ticket.answers)
    assert Coverage(title_tokens + body_tokens, count, truncated=body_tokens > 0) == coverage_of(ticket)


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


def test_the_entities_of_finished_records_count_as_memory() -> None:
    """Until they are published: an article of nothing but names has many times its own size of them."""
    ticket, held_bytes = finished(20, serialise_findings)
    assert isinstance(ticket.outcome, EnrichedRecord)
    assert isinstance(ticket.outcome.entities, WrittenEntities)
    assert len(ticket.outcome.entities.json) == held_bytes == ticket.unpacked_bytes
