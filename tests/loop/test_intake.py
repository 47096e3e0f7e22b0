"""The way to the tokenizer: how much goes at once, and how much more may come."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loop.fake_clock import FakeClock, FakePool, FakeWakeup
from loop.fake_model import AFTER, BEFORE, LABELS, article_value, read, tokenize
from loop.fake_schemas import FakeRegistry, FakeSchemas, with_schema
from loop.world import RULES

from enricher.worker.articles import serialise_findings
from enricher.worker.heads import EntityHead, Head
from enricher.worker.heads.languages import Languages
from enricher.worker.loop import intake as intake_module
from enricher.worker.loop.intake import Intake
from enricher.worker.loop.ports import Tokenized
from enricher.worker.loop.queues import LONG_BYTES
from enricher.worker.records import (
    Article,
    DeadLetter,
    ModelCard,
    OmittedHeaders,
    Partition,
    RawRecord,
    TaskCard,
    Ticket,
    Tombstone,
)
from enricher.worker.rules.batching import LengthBucketScheduler
from enricher.worker.rules.windowing import WindowCutter

PER_CALL, EACH = 1_000, 64
"""Characters that go to the tokenizer at once; what an article counts beside its text."""


def new_intake(
    calls: int = 1_000, heads: Sequence[Head] = (EntityHead.of(LABELS),)
) -> tuple[Intake, FakePool[list[Ticket], Tokenized]]:
    """One whose tokenizer takes so many calls, and answers none."""
    clock = FakeClock()
    pool = FakePool(tokenize, clock=clock, wakeup=FakeWakeup(clock), random=Random(0), limit=calls)
    cutter, scheduler = WindowCutter(10, 4, BEFORE, AFTER), LengthBucketScheduler(RULES)
    taking = pool.as_pool()
    return Intake(
        read, taking, cutter, scheduler, heads, serialise_findings, chars_per_call=PER_CALL, clock=clock
    ), pool


def advance(intake: Intake) -> bool:
    """A turn that may decode everything."""
    return intake.advance(0.0, always)


def always(_: Ticket) -> bool:
    """Let any record be decoded."""
    return True


def tickets(lengths_chars: Sequence[int]) -> list[Ticket]:
    """Articles of so many characters."""
    values = [article_value("", "x" * length) for length in lengths_chars]
    return [Ticket(RawRecord(Partition("t", 0), offset, None, value), 0.0) for offset, value in enumerate(values)]


def packed(count: int) -> list[Ticket]:
    """Records whose values say nothing about the length of their articles."""
    return [Ticket(RawRecord(Partition("t", 0), offset, None, b"packed"), 0.0) for offset in range(count)]


def counted(call: Sequence[Ticket]) -> int:
    """The size of a call."""
    return sum(EACH + ticket.article.length_chars for ticket in call if ticket.article)


@given(st.lists(st.integers(0, 3_000), max_size=60))
def test_calls_are_alike_and_keep_the_order(lengths_chars: list[int]) -> None:
    """Only an article that is longer by itself exceeds the size; none could have had the next one's first article too."""
    intake, pool = new_intake()
    arrived = tickets(lengths_chars)
    intake.take(arrived)
    advance(intake)
    assert arrived == [ticket for call in pool.submitted for ticket in call]
    assert all(counted(call) <= PER_CALL or len(call) == 1 for call in pool.submitted)
    assert all(counted([*call, following[0]]) > PER_CALL for call, following in pairwise(pool.submitted))


def test_there_is_room_for_as_many_as_fill_the_tokenizers_calls() -> None:
    """Measured by what came lately: many short ones, few long ones."""
    intake, pool = new_intake(calls=4)
    for _ in range(200):
        intake.take(tickets([186]))  # 250 with what each counts
        advance(intake)
        pool.finish(pool.submitted[-1])
    advance(intake)
    assert intake.capacity == 16
    intake.take(tickets([186] * 5))
    assert intake.capacity == 11
    advance(intake)
    assert intake.capacity == 8, "two of four calls are taken"


def test_where_the_tokenizer_is_full_nothing_may_come() -> None:
    """One article that is longer than everything fills it, too; what is dropped frees capacity again."""
    intake, pool = new_intake(calls=1)
    intake.take(tickets([5_000]))
    assert intake.capacity == 0
    advance(intake)
    late = tickets([2_000])
    intake.take(late)
    advance(intake)
    assert (0, 1) == (intake.capacity, len(pool.submitted))
    late[0].forgotten = True
    intake.drop_forgotten()
    pool.finish(pool.submitted[0])
    advance(intake)
    assert (1, 1) == (intake.capacity, len(pool.submitted))


def test_a_turn_decodes_so_many_bytes_and_one_value_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow values that arrive together are decoded turn by turn, in their order, and the loop lives meanwhile."""
    monkeypatch.setattr(intake_module, "_DECODED_BYTES", 5_000)
    intake, pool = new_intake()
    arrived = tickets([2_000 - EACH] * 10)
    intake.take(arrived)
    seen: list[int] = []
    while advance(intake) and seen[-1:] != [10]:
        seen.append(sum(ticket.article is not None for ticket in arrived))
    assert seen == [3, 6, 9, 10]
    assert arrived == [ticket for call in pool.submitted for ticket in call]


def test_a_turn_decodes_for_so_long_and_one_value_more() -> None:
    """However little the values are: a schema may make each of them slow."""
    intake, pool = new_intake()
    clock = intake.clock
    assert isinstance(clock, FakeClock)

    def slowly(raw: RawRecord) -> Article:
        clock.sleep(0.1)
        return read(raw)

    intake.read = slowly
    intake.take(arrived := tickets([10] * 7))
    seen: list[int] = []
    while intake.advance(clock(), always) and seen[-1:] != [7]:
        seen.append(sum(ticket.article is not None for ticket in arrived))
    assert [3, 6, 7] == seen
    assert arrived == [ticket for call in pool.submitted for ticket in call]


@pytest.mark.parametrize("length_chars", [10, 2 * LONG_BYTES])
def test_what_may_not_be_decoded_waits_and_lets_others_pass(length_chars: int) -> None:
    """Short and long articles alike; the loop need not turn for those that wait."""
    intake, _ = new_intake()
    intake.take(arrived := tickets([length_chars] * 4))
    assert intake.advance(0.0, lambda ticket: ticket is arrived[2])
    assert [False, False, True, False] == [ticket.article is not None for ticket in arrived]
    assert not intake.advance(0.0, lambda _: False)
    while advance(intake):
        pass
    assert all(ticket.article for ticket in arrived)


@pytest.mark.parametrize("length_chars", [10, 2 * LONG_BYTES])
def test_articles_whose_schemas_have_come_go_first_in_their_order(length_chars: int) -> None:
    """Short and long ones alike: of each partition they are the oldest, and nothing is released before them."""
    intake, pool = new_intake()
    assert isinstance(intake.clock, FakeClock)
    schemas = FakeSchemas(FakeRegistry(), intake.clock, FakeWakeup(intake.clock), Random(0))
    intake.schemas, intake.read = schemas, schemas.read
    newest, *waiting = tickets([length_chars] * 5)
    for ticket, name in zip(waiting, "abab", strict=True):
        ticket.raw = replace(ticket.raw, value=with_schema(name, ticket.raw.value or b""))
    intake.take(waiting)
    while advance(intake):
        pass
    intake.take([newest])
    schemas.answer("schema:b", "schema:a")
    assert waiting == intake.resume_answered()
    while advance(intake):
        pass
    assert [*waiting, newest] == [ticket for call in pool.submitted for ticket in call]


def test_what_waits_to_be_decoded_takes_room_and_keeps_the_loop_awake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing more is read for it, and the loop waits for nobody while there is something to decode."""
    monkeypatch.setattr(intake_module, "_DECODED_BYTES", 1)
    intake, _ = new_intake(calls=6)
    intake.take(tickets([2_000] * 3))
    assert (0, True) == (intake.capacity, intake.busy)
    assert advance(intake), "the loop does not wait after this turn"
    assert 1 == intake.capacity, "five calls are free, and two articles wait for more than four of them"
    intake.take(late := tickets([900]))
    assert 0 == intake.capacity
    late[0].forgotten = True
    intake.drop_forgotten()
    assert 1 == intake.capacity


def test_refused_values_count_for_how_large_articles_are_lately() -> None:
    """Where large values come that are no articles, fewer are read at once."""
    intake, _ = new_intake(calls=4)
    assert intake.capacity == 4
    for value in [b"x" * 100_000] * 4:
        intake.take([Ticket(RawRecord(Partition("t", 0), 0, None, value), 0.0)])
        advance(intake)
    assert intake.capacity == 1


def test_too_many_headers_make_an_article_or_tombstone_a_dead_letter() -> None:
    """The reason says how many there were. A tombstone's headers never went anywhere, and a deletion is not lost."""
    intake, pool = new_intake()
    article, tombstone = (
        Ticket(RawRecord(Partition("t", 0), offset, None, value, omitted_headers=OmittedHeaders(95_000, 190_000)), 0.0)
        for offset, value in enumerate([article_value("", "x"), None])
    )
    intake.take([article, tombstone])
    advance(intake)
    assert isinstance(article.outcome, DeadLetter)
    assert article.outcome.message == "95000 headers are more than 300; none of them is kept"
    assert tombstone.outcome == Tombstone()
    assert pool.submitted == []


@pytest.mark.parametrize(
    ("value", "document", "further", "expected"),
    [
        (b"\nab", None, None, 0),
        (b"\nab", b"the value", None, 0),
        (b"\nab", b"12345", None, 5),
        (b"\nab", b"12345", b'{"a":1}', 12),
        ("\næøå".encode(), None, None, 0),
        (b"packed", None, None, 4_994),
    ],
)
def test_what_an_article_takes_beyond_its_record_is_told_once(
    value: bytes, document: bytes | None, further: bytes | None, expected: int
) -> None:
    """A document that is the record's own value takes nothing, metadata and packed text do; text has no more characters."""
    intake, _ = new_intake()
    kept = value if document == b"the value" else document
    article = Article("1", "", "x" * 5_000) if value == b"packed" else Article("1", "", value.decode()[1:])
    intake.read = lambda _raw: replace(article, document=kept, further=further)
    ticket = Ticket(RawRecord(Partition("t", 0), 0, None, value), 0.0)
    intake.take([ticket])
    advance(intake)
    assert (expected, expected, 0) == (
        ticket.unpacked_bytes,
        intake.take_unpacked_bytes(),
        intake.take_unpacked_bytes(),
    )


def test_one_turn_decodes_no_more_packed_articles_than_plain_ones() -> None:
    """What they are unpacked to is what a turn has time for."""
    intake, _ = new_intake()
    intake.read = lambda _raw: Article("1", "", "x" * 300_000)
    arrived = packed(9)
    intake.take(arrived)
    advance(intake)
    assert 4 == sum(ticket.article is not None for ticket in arrived)


def test_articles_with_long_text_are_long_however_small_their_values_are() -> None:
    """Few are decoded before they are wanted, each once, and those that wait are dropped if they are forgotten."""
    intake, pool = new_intake()
    reads: list[int] = []
    intake.read = lambda raw: reads.append(raw.offset) or Article("1", "", "x" * 900_000)  # type: ignore[func-returns-value]
    intake.take(arrived := packed(40))
    for _ in range(100):
        advance(intake)
    assert (2, 5) == (len(pool.submitted), len(reads)), "two in progress, and the bound exceeded by at most one"
    assert (True, False) == (intake.busy, advance(intake)), "the loop waits for those in progress"
    for ticket in arrived[:-1]:
        ticket.forgotten = True
    intake.drop_forgotten()
    advance(intake)
    assert (arrived[-1:], [0, 1, 2, 3, 4, 39]) == (pool.submitted[-1], reads)


def spoken_intake(*heads: Head, measured: Languages | None = None) -> Intake:
    """With heads that were measured in some languages; the value of a record is its article's language."""

    def read_language(raw: RawRecord) -> Article:
        return Article("id", "", "text", language=(raw.value or b"").decode())

    heads = tuple(replace(head, measured=measured or head.measured) for head in heads)
    return replace(new_intake(heads=heads)[0], read=read_language)


def english_intake() -> Intake:
    """One whose only task is for English, with or without a language."""
    card = TaskCard("english", "ner", ModelCard("fake", "0", "fp32"))
    return spoken_intake(EntityHead.of(LABELS, card, Languages(frozenset({"en"}), default=True)))


def warnings_for(intake: Intake, caplog: pytest.LogCaptureFixture, *languages: str) -> list[str]:
    """What is logged while articles in these languages are decoded."""
    caplog.clear()
    intake.take([Ticket(RawRecord(Partition("t", 0), 0, None, each.encode()), 0.0) for each in languages])
    while advance(intake):
        pass
    return caplog.messages


def test_a_language_without_a_task_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """With what to do; one that a task takes is not, nor is a blank one."""
    intake = english_intake()
    (message,) = warnings_for(intake, caplog, "por_Latn", "eng_Latn", "por_Latn", " ", "")
    assert message.startswith(
        "no task is for articles in the language por_Latn, so their records are empty. Add it to `languages`"
    )
    assert [] == warnings_for(intake, caplog, "por_Latn")
    assert 1 == len(warnings_for(intake, caplog, "fr"))


def test_a_language_that_the_model_was_not_measured_in_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """With what to do, and its tickets are marked; one that was measured is not, nor is an article without a language."""
    german = Languages(frozenset({"de"}), default=True)
    intake = spoken_intake(EntityHead.of(LABELS, languages=None), measured=german)
    (message,) = warnings_for(intake, caplog, "fr", "deu_Latn", "de-CH", "fr", " ", "")
    assert "articles in the language fr, in which nobody measured the model that answers them" in message
    assert "enricher model evaluate" in message
    tickets = [Ticket(RawRecord(Partition("t", 0), 0, None, each), 0.0) for each in (b"fr", b"de", b"")]
    intake.take(tickets)
    while advance(intake):
        pass
    assert [True, False, False] == [ticket.unmeasured for ticket in tickets]


def test_a_task_for_other_languages_says_nothing_of_an_article(caplog: pytest.LogCaptureFixture) -> None:
    """What answers French here was made for it; only the task for English was measured, and that in English."""
    english = Languages(frozenset({"en"}))
    measured = replace(EntityHead.of(LABELS, languages=english), measured=english)
    intake = spoken_intake(measured, EntityHead.of(LABELS, languages=Languages(frozenset({"fr"}))))
    assert [] == warnings_for(intake, caplog, "fr", "en")


def test_no_log_has_a_language_that_may_be_any_text(caplog: pytest.LogCaptureFixture) -> None:
    """All of them have one line together."""
    secret = "Angela Merkel was seen\nin Paris"
    (message,) = warnings_for(english_intake(), caplog, secret, secret.upper(), "x" * 200)
    assert "(not shown: it is no tag such as en, eng or en-GB)" in message
    assert "merkel" not in message.lower()


def test_so_many_languages_without_a_task_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A stranger may give every article its own; the last line says that no more will come."""
    messages = warnings_for(english_intake(), caplog, *(f"x-{number}" for number in range(1_000)))
    assert 100 == len(messages)
    assert [False] * 99 + [True] == ["further languages are not logged" in each for each in messages]
