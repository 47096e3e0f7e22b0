"""An article in several passes: whatever comes back in whatever order, it has one outcome, exactly that of its heads."""

from __future__ import annotations

import gc
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rules.building import raw, spans_of_words

from enricher.worker.heads import ClassHead, EmbeddingHead, EntityHead, Head
from enricher.worker.heads.languages import Languages
from enricher.worker.records import (
    Article,
    Batch,
    BatchResult,
    Coverage,
    DeadLetter,
    EnrichedRecord,
    HeadOutput,
    ModelCard,
    Part,
    RunOutput,
    TaskCard,
    TaskReport,
    Ticket,
    TokenizedArticle,
    TokenizedField,
    TokenLabels,
    Window,
    WindowFailure,
    WindowRows,
)
from enricher.worker.rules.assembly import finish_enriched, store_answers
from enricher.worker.rules.parts import Found, Splitter
from enricher.worker.rules.windowing import WindowCutter

MODEL = ModelCard("model", "0", "fp32")
LATER, TOPIC, FIRST, VECTOR = CARDS = (
    TaskCard("later", "ner", MODEL),
    TaskCard("topic", "classification", MODEL, "mean"),
    TaskCard("first", "ner", MODEL),
    TaskCard("vector", "embedding", MODEL, "mean"),
)
GERMAN, ENGLISH = Languages(frozenset({"de"})), Languages(frozenset({"en"}), default=True)
HEADS: tuple[tuple[Head, ...], ...] = (
    (EntityHead.of(("O", "A"), FIRST, names_task=True), EmbeddingHead(VECTOR, languages=GERMAN)),
    (EntityHead.of(("O", "B"), LATER, names_task=True), ClassHead(TOPIC, ("even", "odd"), languages=GERMAN)),
)
"""The second pass is that of the first task."""
CUTTERS = (WindowCutter(7, 2, (101,), (102,)), WindowCutter(5, 1, (103,), ()))


def article_of(words: int, language: str | None) -> Ticket:
    """So many words of one letter."""
    return Ticket(raw(0), 0.0, Article("id", "", " ".join("a" * words), language=language))


def windows_of(part: Part) -> list[Window]:
    """Those of its pass; a part without any is finished, as intake does it."""
    assert part.ticket.article is not None
    body = part.ticket.article.body
    tokens = TokenizedField("body", np.arange(len(body.split()), dtype=np.int32), spans_of_words(body))
    windows = CUTTERS[part.pass_index].cut(part, TokenizedArticle((tokens,)), 0.0)
    if not windows:
        finish_enriched(part, HEADS[part.pass_index])
    return windows


def answered(windows: list[Window], failing: set[int] = frozenset()) -> BatchResult:  # type: ignore[assignment]
    """Every third word is an A in the first pass, every fourth a B in the second; a row is the mean of its words' places."""
    good = [each for each in windows if id(each) not in failing]
    failures = [WindowFailure(each, "Broken", "it is") for each in windows if id(each) in failing]
    ids = np.concatenate([each.ids for each in good]) if good else np.zeros(0, np.int32)
    starts = np.cumsum([0, *(len(each.ids) for each in good)]).tolist()[:-1]
    means = [float(np.mean(range(each.own_start, each.own_stop))) for each in good]
    index = windows[0].part.pass_index
    labels = TokenLabels((ids % (4 if index else 3) == 0).astype(np.int32), np.full(len(ids), 0.5, np.float32))
    rows = np.array([[-each, each] for each in means] if index else [[each] for each in means], np.float32)
    heads: list[HeadOutput] = [labels, WindowRows(rows)]
    return BatchResult(Batch(tuple(windows)), [RunOutput(good, starts, heads)] if good else [], failures)


def check(ticket: Ticket, words: int, language: str | None) -> None:
    """The record of an article, from the number of its words."""
    record = ticket.outcome
    assert isinstance(record, EnrichedRecord)
    german = language == "de"
    expected = [("later", "B", 2 * at) for at in range(0, words, 4)]
    expected += [("first", "A", 2 * at) for at in range(0, words, 3)]
    assert expected == [(each["task"], each["label"], each["start"]) for each in record.entities]
    places = {("later", "B"): -(-words // 4), ("first", "A"): -(-words // 3)}
    classes = [("topic", "odd" if words > 1 else "even")] if german and words else []
    assert classes == [(each["task"], each["label"]) for each in record.findings.get("classifications", [])]
    assert {key: count for key, count in places.items() if count} | dict.fromkeys(classes, 1) == record.labels
    vectors = [(words - 1) / 2] if german and words else []
    assert vectors == pytest.approx([float(each.vector[0]) for each in record.findings.get("embeddings", [])])
    assert [("later", True), ("topic", german), ("first", True), ("vector", german)] == [
        (report.task.name, report.coverage is not None) for report in record.tasks
    ]
    assert words == record.coverage.tokens
    ran = [report for report in record.tasks if report.coverage is not None]
    named = [report for report in ran if report.task.kind == "ner"] or ran
    assert record.coverage == named[0].coverage


@dataclass(frozen=True, slots=True)
class Lot:
    """What happens to articles: batches of their windows in any order and company, failures, forgetting."""

    articles: list[tuple[int, str | None]]
    tickets: list[Ticket]
    windows: dict[int, list[Window]]
    batches: list[list[Window]]
    failing: set[int]
    forgotten: dict[int, int]
    """How many batches come back before a ticket is forgotten, by its index."""


@st.composite
def lots(draw: st.DrawFn) -> Lot:
    """Some of everything."""
    articles = draw(
        st.lists(st.tuples(st.integers(0, 20), st.sampled_from(["de", "en", None])), min_size=1, max_size=4)
    )
    splitter, tickets, windows = Splitter(HEADS, CARDS), [], dict[int, list[Window]]()
    for index, (words, language) in enumerate(articles):
        tickets.append(article_of(words, language))
        windows[index] = [window for part in splitter.split(tickets[-1]) for window in windows_of(part)]
    mixed = draw(st.permutations([window for its_own in windows.values() for window in its_own]))
    batches = []
    for index in (0, 1):
        rest = [window for window in mixed if window.part.pass_index == index]
        while rest:
            size = draw(st.integers(1, len(rest)))
            batches.append(rest[:size])
            rest = rest[size:]
    batches = draw(st.permutations(batches))
    failing = draw(st.sets(st.sampled_from([id(window) for window in mixed]), max_size=2)) if mixed else set()
    forgotten = draw(st.dictionaries(st.integers(0, len(articles) - 1), st.integers(0, len(batches)), max_size=2))
    return Lot(articles, tickets, windows, batches, failing, forgotten)


@given(lots())
def test_every_article_has_the_outcome_of_its_heads(lot: Lot) -> None:
    """A window that failed in either pass makes a dead letter of its article alone; a forgotten one is nothing."""
    finished_before: set[int] = set()
    for number, batch in enumerate(lot.batches):
        for index, after in lot.forgotten.items():
            if after == number:
                lot.tickets[index].forgotten = True
                finished_before |= {index} if lot.tickets[index].outcome else set()
        store_answers(answered(batch, lot.failing), HEADS[batch[0].part.pass_index])
    for index, (words, language) in enumerate(lot.articles):
        ticket = lot.tickets[index]
        if ticket.forgotten and index not in finished_before:
            assert ticket.outcome is None or not lot.windows[index]
        elif failed := [window for window in lot.windows[index] if id(window) in lot.failing]:
            assert ticket.outcome == DeadLetter("inference", "Broken", "it is")
            assert ticket.failed_pass in {window.part.pass_index for window in failed}
        else:
            check(ticket, words, language)


def test_entities_are_kept_once_for_all_passes() -> None:
    """In the order of the settings, and only when all are there."""
    ticket, kept = article_of(5, "en"), []

    def keep(record: EnrichedRecord) -> EnrichedRecord:
        kept.append(len(record.entities))
        return record

    for part in Splitter(HEADS, CARDS).split(ticket):
        store_answers(answered(windows_of(part)), HEADS[part.pass_index], keep)
    assert [4] == kept
    check(ticket, 5, "en")


def test_vectors_count_among_what_the_article_takes() -> None:
    """Of every pass, with the article's own ticket: a finished record may wait long, and keeps them as text."""
    ticket = article_of(5, "de")
    added = [
        store_answers(answered(windows_of(part)), HEADS[part.pass_index])
        for part in Splitter(HEADS, CARDS).split(ticket)
    ]
    assert isinstance(ticket.outcome, EnrichedRecord)
    [vector] = ticket.outcome.findings["embeddings"]
    assert [3 * vector.vector.nbytes, 0] == added
    assert sum(added) == ticket.unpacked_bytes


def test_one_pass_makes_one_part() -> None:
    """With tasks or without; without tasks it does not look at the language, or at the article."""
    for heads in ((EntityHead.of(("O", "A")),), HEADS[0], HEADS[1]):
        ticket = article_of(3, "fr")
        assert [(ticket, 0)] == [(part.ticket, part.pass_index) for part in Splitter([heads]).split(ticket)]
    ticket = Ticket(raw(0), 0.0)
    assert [ticket] == [part.ticket for part in Splitter([(EntityHead.of(("O", "A")),)]).split(ticket)]


def test_one_pass_says_which_of_its_tasks_ran() -> None:
    """Those that are not for the article's language have no answer in its record, though the model computed one."""
    ticket = article_of(6, "en")
    store_answers(answered(windows_of(Part(ticket))), HEADS[0])
    assert isinstance(ticket.outcome, EnrichedRecord)
    coverage = Coverage(tokens=6, windows=2, truncated=False)
    assert [TaskReport(FIRST, coverage), TaskReport(VECTOR, None)] == ticket.outcome.tasks
    assert {} == ticket.outcome.findings
    assert coverage == ticket.outcome.coverage


@pytest.mark.parametrize("passes", [1, 2])
def test_an_article_for_which_no_task_is_has_an_empty_record(passes: int) -> None:
    """It says of each task that it did not run."""
    heads = [[EntityHead.of(("O", "A"), card, GERMAN)] for card in (FIRST, LATER)[:passes]]
    ticket = article_of(3, None)
    assert [] == Splitter(heads).split(ticket)
    assert isinstance(ticket.outcome, EnrichedRecord)
    assert ticket.outcome.entities == []
    assert Coverage(tokens=0, windows=0, truncated=False) == ticket.outcome.coverage
    assert [(FIRST, None), (LATER, None)][:passes] == [(each.task, each.coverage) for each in ticket.outcome.tasks]


def test_an_article_has_a_part_for_each_pass_that_it_needs() -> None:
    """The default task takes it without a language."""
    heads = [[EntityHead.of(("O", "A"), FIRST, GERMAN)], [EntityHead.of(("O", "A"), LATER, ENGLISH)]]
    expected = {"de": [0], "en": [1], None: [1], "fr": []}
    for language, passes in expected.items():
        parts = Splitter(heads).split(article_of(3, language))
        assert passes == [part.pass_index for part in parts]


def test_a_dead_letter_of_one_part_ends_the_others() -> None:
    """Their late results are dropped, and so are those of a ticket that is forgotten."""
    ticket = article_of(3, "de")
    first, second = Splitter(HEADS, CARDS).split(ticket)
    windows = windows_of(first), windows_of(second)
    store_answers(answered(windows[1], {id(windows[1][0])}), HEADS[1])
    assert (False, False, False, 1) == (first.live, second.live, ticket.live, ticket.failed_pass)
    store_answers(answered(windows[0]), HEADS[0])
    assert isinstance(ticket.outcome, DeadLetter)
    late = article_of(3, "de")
    parts = Splitter(HEADS, CARDS).split(late)
    late.forgotten = True
    assert [False, False] == [part.live for part in parts]


def test_parts_are_freed_without_the_garbage_collector() -> None:
    """A ticket that waits for its transaction keeps nothing of them."""
    ticket = article_of(3, "de")
    before = parts_of(ticket)
    parts = Splitter(HEADS, CARDS).split(ticket)
    gc.disable()
    try:
        for part in parts:
            store_answers(answered(windows_of(part)), HEADS[part.pass_index])
        assert len(parts) == parts_of(ticket) - before - 1
        del part, parts
        assert parts_of(ticket) == before
    finally:
        gc.enable()
    check(ticket, 3, "de")


def parts_of(ticket: Ticket) -> int:
    """How many objects about the parts of a ticket there are in memory."""
    parts = sum(isinstance(each, Part) and each.ticket is ticket for each in gc.get_objects())
    return parts + sum(isinstance(each, Found) for each in gc.get_objects())


@pytest.mark.parametrize(("language", "failed", "dies"), [("en", 1, False), ("de", 1, True), ("en", 0, True)])
def test_a_head_that_fails_on_a_window_costs_the_articles_that_it_is_for(
    language: str, failed: int, *, dies: bool
) -> None:
    """The numbers of a head for other languages are computed for all articles of a batch, and nobody reads them."""
    ticket = article_of(20, language)
    windows = windows_of(Part(ticket))
    result = answered(windows)
    failure = WindowFailure(windows[1], "NotFinite", "no number", [failed])
    store_answers(replace(result, failures=[failure]), HEADS[0])
    if dies:
        assert DeadLetter("inference", "NotFinite", "no number") == ticket.outcome
    else:
        assert isinstance(ticket.outcome, EnrichedRecord)
        assert {} == ticket.outcome.findings
        assert len(ticket.outcome.entities) > 2
