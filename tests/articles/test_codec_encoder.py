"""`Encoder`: what becomes of a ticket, and that its message always fits into its topic."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.plain_records import plain_record
from support.texts import any_text

from enricher.errors import SettingsError
from enricher.worker.articles import (
    MIN_MESSAGE_BYTES,
    Encoder,
    EventHeaders,
    dead_letter_headers,
    encode_record,
    record_headers,
)
from enricher.worker.records import (
    Article,
    Coverage,
    DeadLetter,
    Embedding,
    EnrichedRecord,
    LetterForm,
    ModelCard,
    OmittedHeaders,
    Outcome,
    Partition,
    RawRecord,
    TaskCard,
    TaskReport,
    Ticket,
    Tombstone,
)

LETTER = DeadLetter("decode", "InvalidArticle", "body is missing")
CARD = ModelCard("m", "d", "fp32")
VERSION = 1042 << 12
NOW_S = 1773482400.25


def encoder(
    *,
    max_record_bytes: int = 10**6,
    max_dead_letter_bytes: int = 10**6,
    events: EventHeaders | None = None,
) -> Encoder:
    """Make an encoder whose clock stands still."""
    return Encoder(
        version="0.1.0",
        max_record_bytes=max_record_bytes,
        max_dead_letter_bytes=max_dead_letter_bytes,
        clock=lambda: NOW_S,
        events=events,
    )


def finished(raw: RawRecord, outcome: Outcome) -> Ticket:
    """Make the ticket of `raw`, with its outcome."""
    ticket = Ticket(raw, arrived_s=0.0)
    ticket.finish(outcome)
    return ticket


def ours(headers: list[tuple[str, bytes | None]]) -> dict[str, bytes | None]:
    """Pick the headers that the codec added, by name."""
    return {name: value for name, value in headers if name.startswith("enricher.")}


def test_record_goes_out_under_the_key_of_its_input(raw: RawRecord, record: EnrichedRecord) -> None:
    """Key of the input, value and headers of the codec, and the ticket for the counters."""
    ticket = finished(raw, record)
    message = encoder().outgoing(ticket)
    assert ("record", b"key-1", encode_record(record)) == (message.kind, message.key, message.value)
    assert record_headers(raw, version=VERSION, tombstone=False) == message.headers
    assert ticket is message.ticket


def test_tombstone_passes_through(raw: RawRecord) -> None:
    """A deleted article is a null value under the same key."""
    message = encoder().outgoing(finished(replace(raw, value=None), Tombstone()))
    assert (message.kind, message.key, message.value) == ("tombstone", b"key-1", None)
    assert record_headers(raw, version=VERSION, tombstone=True) == message.headers


def test_dead_letter_gives_the_input_back_untouched(raw: RawRecord) -> None:
    """Key, value and headers are the input's own bytes, so that it can be sent again."""
    message = encoder().outgoing(finished(raw, LETTER))
    assert ("dead_letter", raw.key, raw.value) == (message.kind, message.key, message.value)
    expected = dead_letter_headers(raw, LETTER, version="0.1.0", time_s=NOW_S, omitted_bytes=None)
    assert expected == message.headers
    assert message.letter is LETTER


def test_record_above_the_bound_of_its_topic_becomes_a_dead_letter(raw: RawRecord, record: EnrichedRecord) -> None:
    """At the bound it is written; a byte above it would be refused by the broker, with its whole transaction."""
    size = encoder().outgoing(finished(raw, record)).size_bytes
    longer = 10_000 - size
    at_bound = replace(record, article=replace(record.article, metadata={"language": "nb" + "x" * longer}))
    above = replace(record, article=replace(record.article, metadata={"language": "nbx" + "x" * longer}))
    assert encoder(max_record_bytes=10_000).outgoing(finished(raw, at_bound)).kind == "record"
    message = encoder(max_record_bytes=10_000).outgoing(finished(raw, above))
    assert message.kind == "dead_letter"
    expected = DeadLetter(
        "publish", "OutputTooLarge", "the enriched record takes 10001 bytes, articles.max_record_bytes is 10000"
    )
    assert expected == message.letter
    assert raw.value == message.value


def test_whole_article_counts_and_the_dead_letter_says_so(raw: RawRecord, record: EnrichedRecord) -> None:
    """At the bound it is written; a byte above it the message names the setting that makes records so large."""
    whole = replace(record, article=replace(record.article, document=b"{}"))
    document = b'{"b":"' + b"x" * (10_000 - encoder().outgoing(finished(raw, whole)).size_bytes - 6) + b'"}'
    bounded = encoder(max_record_bytes=10_000)
    at_bound = replace(record, article=replace(record.article, document=document))
    assert bounded.outgoing(finished(raw, at_bound)).kind == "record"
    above = replace(record, article=replace(record.article, document=document + b" "))
    message = bounded.outgoing(finished(raw, above))
    said = (
        f"the enriched record takes 10001 bytes ({len(document) + 1} of them are its article: output.article=whole), "
        "articles.max_record_bytes is 10000"
    )
    assert DeadLetter("publish", "OutputTooLarge", said) == message.letter
    assert raw.value == message.value


def test_a_vector_that_cannot_be_in_a_record_is_a_dead_letter(raw: RawRecord, record: EnrichedRecord) -> None:
    """The encoder never raises because of what was found in an article."""
    task = TaskCard("meaning", "embedding", ModelCard("m", "sha256:0", "fp32"), "mean", "list")
    vector = Embedding(task, np.full(3, np.inf, np.float32))
    odd = replace(record, findings={"embeddings": [vector]}, tasks=[TaskReport(task, record.coverage)])
    message = encoder().outgoing(finished(raw, odd))
    said = "the vector of task 'meaning' is not finite"
    assert ("dead_letter", raw.value) == (message.kind, message.value)
    assert DeadLetter("publish", "InvalidArticle", said) == message.letter


def test_event_headers_stand_between_the_records_own_and_the_trace(raw: RawRecord, record: EnrichedRecord) -> None:
    """Everything that was there before stays where it was; the size counts them."""
    ticket = finished(raw, record)
    ticket.trace = (("traceparent", b"00-2"),)
    events = EventHeaders("/s")
    message = encoder(events=events).outgoing(ticket)
    own = record_headers(raw, version=VERSION, tombstone=False)
    assert [*own, *events.of_record(own, "a-1"), ("traceparent", b"00-2")] == message.headers
    headers = sum(len(name) + len(value or b"") + 10 for name, value in message.headers)
    assert len(b"key-1") + len(message.value or b"") + headers + 512 == message.size_bytes
    assert message.headers == encoder(events=events).outgoing(ticket).headers


def test_tombstone_and_dead_letter_are_no_events_of_ours(raw: RawRecord) -> None:
    """A tombstone has no data, and a dead letter has its input's headers: those of an event if it was one."""
    made = encoder(events=EventHeaders("/s"))
    tombstone = made.outgoing(finished(replace(raw, value=None), Tombstone()))
    assert record_headers(raw, version=VERSION, tombstone=True) == tombstone.headers
    event = replace(raw, headers=(("ce_id", b"e-1"), ("ce_specversion", b"1.0"), ("content-type", b"a/b")))
    letter = made.outgoing(finished(event, LETTER))
    assert list(event.headers) == letter.headers[:3]
    assert not any(name.startswith("ce_") for name, _ in letter.headers[3:])


def test_size_counts_key_value_headers_and_overhead(raw: RawRecord, record: EnrichedRecord) -> None:
    """512 bytes for what the broker adds, 10 a header for its lengths."""
    message = encoder().outgoing(finished(raw, record))
    assert message.value is not None
    headers = sum(len(name) + len(value or b"") + 10 for name, value in message.headers)
    assert len(b"key-1") + len(message.value) + headers + 512 == message.size_bytes


def test_tombstone_with_a_huge_key_becomes_a_dead_letter(raw: RawRecord) -> None:
    """A key alone can be too large for the output topic."""
    huge = replace(raw, key=b"k" * 9000, value=None)
    message = encoder(max_record_bytes=MIN_MESSAGE_BYTES).outgoing(finished(huge, Tombstone()))
    assert ("dead_letter", huge.key, None) == (message.kind, message.key, message.value)
    assert "enricher.dlq.value.omitted_bytes" not in ours(message.headers), "a null value is not left out"


def test_dead_letter_above_the_bound_loses_its_value_first(raw: RawRecord) -> None:
    """The value is left out and its size is said; key and headers stay."""
    large = replace(raw, value=b"v" * 5000)
    message = encoder(max_dead_letter_bytes=MIN_MESSAGE_BYTES).outgoing(finished(large, LETTER))
    assert (raw.key, None) == (message.key, message.value)
    assert list(raw.headers) == message.headers[: len(raw.headers)]
    assert ours(message.headers)["enricher.dlq.value.omitted_bytes"] == b"5000"


def test_dead_letter_with_huge_headers_loses_them_and_says_so(raw: RawRecord) -> None:
    """What still does not fit without its value keeps its key and our headers only."""
    large = replace(raw, headers=(("x", b"h" * 5000),))
    message = encoder(max_dead_letter_bytes=MIN_MESSAGE_BYTES).outgoing(finished(large, LETTER))
    assert (raw.key, None) == (message.key, message.value)
    assert all(name.startswith("enricher.dlq.") for name, _ in message.headers)
    assert ours(message.headers)["enricher.dlq.headers.omitted_bytes"] == b"5011"
    assert ours(message.headers)["enricher.dlq.value.omitted_bytes"] == b"13"


def test_dead_letter_with_a_huge_key_loses_it_at_last(raw: RawRecord) -> None:
    """Where it came from is always told, whatever else is too large."""
    large = replace(raw, key=b"k" * 5000)
    message = encoder(max_dead_letter_bytes=MIN_MESSAGE_BYTES).outgoing(finished(large, LETTER))
    assert (message.key, message.value) == (None, None)
    assert ours(message.headers)["enricher.dlq.key.omitted_bytes"] == b"5000"
    assert ours(message.headers)["enricher.dlq.source.offset"] == b"1042"


def test_headers_that_were_let_go_of_on_reading_are_told_in_every_form(raw: RawRecord) -> None:
    """The letter gives back key and value, and says how large the headers were."""
    raw = replace(raw, headers=(), omitted_headers=OmittedHeaders(95_000, 190_000))
    message = encoder().outgoing(finished(raw, LETTER))
    assert (raw.key, raw.value) == (message.key, message.value)
    assert ours(message.headers)["enricher.dlq.headers.omitted_bytes"] == b"190000"
    bare = encoder().outgoing(finished(raw, replace(LETTER, form=LetterForm.BARE)))
    assert (None, None) == (bare.key, bare.value)
    assert ours(bare.headers)["enricher.dlq.headers.omitted_bytes"] == b"190000"


@pytest.mark.parametrize("form", LetterForm)
def test_letter_is_written_in_its_form_or_a_smaller_one(raw: RawRecord, form: LetterForm) -> None:
    """A form that the broker refused is not tried again, though by its size it would fit."""
    message = encoder().outgoing(finished(raw, replace(LETTER, form=form)))
    kept = (message.value is not None, message.headers[0] == raw.headers[0], message.key is not None)
    assert kept == (form < LetterForm.WITHOUT_VALUE, form < LetterForm.WITHOUT_HEADERS, form < LetterForm.BARE)
    assert message.letter is not None
    assert form == message.letter.form


@pytest.mark.parametrize(
    ("raw", "form"),
    [
        (RawRecord(Partition("t", 0), 0, b"k", None), LetterForm.WITHOUT_HEADERS),
        (RawRecord(Partition("t", 0), 0, None, None), LetterForm.BARE),
        (RawRecord(Partition("t", 0), 0, None, b"v" * 5000), LetterForm.BARE),
        (RawRecord(Partition("t", 0), 0, None, b"v" * 5000, (("h", b""),)), LetterForm.WITHOUT_VALUE),
    ],
)
def test_what_an_input_does_not_have_counts_as_left_out(raw: RawRecord, form: LetterForm) -> None:
    """So that a letter of which nothing can be left out any more is known as bare, and not refused again and again."""
    message = encoder(max_dead_letter_bytes=MIN_MESSAGE_BYTES).outgoing(finished(raw, LETTER))
    assert message.letter is not None
    assert form is message.letter.form


def test_topic_that_takes_less_than_the_setting_says_decides(raw: RawRecord, record: EnrichedRecord) -> None:
    """For both topics, until it takes more again; a topic that takes more than the setting changes nothing."""
    large = replace(raw, value=b"v" * 50_000)
    limited = encoder(max_dead_letter_bytes=100_000)
    limited.limit_to(record_bytes=700, dead_letter_bytes=20_000)
    assert limited.outgoing(finished(raw, record)).kind == "dead_letter"
    assert limited.outgoing(finished(large, LETTER)).value is None
    limited.limit_to(record_bytes=None, dead_letter_bytes=10**9)
    assert limited.outgoing(finished(raw, record)).kind == "record"
    assert limited.outgoing(finished(large, LETTER)).value == large.value
    assert limited.outgoing(finished(replace(raw, value=b"v" * 200_000), LETTER)).value is None


def test_bare_letter_goes_out_even_where_the_topic_takes_less(raw: RawRecord) -> None:
    """Whether it does is the broker's to say, in words that name the record."""
    limited = encoder()
    limited.limit_to(record_bytes=10, dead_letter_bytes=10)
    message = limited.outgoing(finished(raw, LETTER))
    assert (None, None) == (message.key, message.value)
    assert message.size_bytes > 10


def test_bound_too_small_for_our_own_headers_is_refused_at_start() -> None:
    """Below 4 kB even an empty dead letter might not fit, so no worker starts with that."""
    with pytest.raises(SettingsError, match="at least 4096"):
        encoder(max_record_bytes=4095)
    with pytest.raises(SettingsError, match="at least 4096"):
        encoder(max_dead_letter_bytes=4095)


def test_unfinished_ticket_is_a_bug(raw: RawRecord) -> None:
    """Only finished tickets are released."""
    with pytest.raises(AssertionError):
        encoder().outgoing(Ticket(raw, arrived_s=0.0))


sizes = st.integers(0, 6000)


@given(
    key=st.none() | sizes.map(bytes),
    value=st.none() | sizes.map(bytes),
    headers=st.lists(
        st.tuples(st.sampled_from(["a", "é", "enricher.dlq.stage"]), st.none() | sizes.map(bytes)), max_size=3
    ),
    topic=st.integers(1, 249),
    letter=st.builds(DeadLetter, st.just("inference"), any_text(max_size=2000), any_text(max_size=2000)),
    limit=st.integers(MIN_MESSAGE_BYTES, 20_000),
    document=st.none() | sizes.map(lambda size: b'"' + b"x" * size + b'"'),
    events=st.none() | st.just(EventHeaders("/s" * 256)),
)
def test_every_message_fits_its_topic(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    topic: int,
    letter: DeadLetter,
    limit: int,
    document: bytes | None,
    events: EventHeaders | None,
) -> None:
    """Whatever comes in, what goes out is within the bound, and whatever is missing is announced."""
    raw = RawRecord(Partition("t" * topic, 10**5), 2**43 - 1, key, value, tuple(headers), topic_id="i" * 22)
    article = Article("i" * 512, "", "b", document=document)
    record = plain_record(article, (), Coverage(tokens=1, windows=1, truncated=False))
    for outcome in (letter, record):
        bounded = encoder(max_record_bytes=limit, max_dead_letter_bytes=limit, events=events)
        message = bounded.outgoing(finished(raw, outcome))
        assert message.size_bytes <= limit
        if message.kind == "dead_letter":
            said = ours(message.headers)
            assert (message.value == value) != ("enricher.dlq.value.omitted_bytes" in said)
            assert (message.key == key) != ("enricher.dlq.key.omitted_bytes" in said)
            kept = [(f"input.{name}" if name.startswith("enricher.") else name, value) for name, value in headers]
            assert (message.headers[: len(headers)] == kept) != ("enricher.dlq.headers.omitted_bytes" in said)
