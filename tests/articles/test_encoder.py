"""`Encoder`: what becomes of a ticket, the headers of its message, byte by byte, and that it always fits into its topic.

And the version of records: its layout, its ranges, and which records have it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args
from uuid import uuid5

import orjson
import pytest
from annotated_types import Ge, Le
from hypothesis import given
from hypothesis import strategies as st
from support.properties import any_text
from support.records import article_in, finished, plain_record, unwritable_record
from support.records import encoder_of as encoder

from enricher.errors import FatalError, SettingsError
from enricher.worker.articles import (
    MAX_REASON_BYTES,
    MIN_MESSAGE_BYTES,
    clip,
    dead_letter_headers,
    encode_record,
    record_headers,
)
from enricher.worker.articles.encoder import RECORD_NAMESPACE
from enricher.worker.records import (
    Article,
    Coverage,
    DeadLetter,
    EnrichedRecord,
    LetterForm,
    OmittedHeaders,
    Outcome,
    Partition,
    RawRecord,
    Tombstone,
    Versioning,
)
from enricher.worker.records.outcomes import MAX_EPOCH, MAX_GENERATION, MAX_OFFSET, record_version
from enricher.worker.settings import Settings
from enricher.worker.wiring.formats import line_reader, read_function

LETTER = DeadLetter("decode", "InvalidArticle", "body is missing")
VERSION = 1042 << 12


def ours(headers: list[tuple[str, bytes | None]]) -> dict[str, bytes | None]:
    """Pick the headers that the codec added, by name."""
    return {name: value for name, value in headers if name.startswith("enricher.")}


def test_output_goes_out_under_the_key_of_its_input(raw: RawRecord, record: EnrichedRecord) -> None:
    """With the codec's value and headers; a deleted article is a null value. The ticket is there for the counters."""
    for outcome, kind, value in ((record, "record", encode_record(record)), (Tombstone(), "tombstone", None)):
        ticket = finished(raw if value else replace(raw, value=None), outcome)
        message = encoder().outgoing(ticket)
        assert (kind, b"key-1", value, ticket) == (message.kind, message.key, message.value, message.ticket)
        assert record_headers(raw, version=VERSION, tombstone=value is None) == message.headers


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


def test_a_vector_that_cannot_be_in_a_record_is_a_dead_letter(raw: RawRecord) -> None:
    """The encoder never raises because of what was found in an article."""
    message = encoder().outgoing(finished(raw, unwritable_record()))
    assert ("dead_letter", raw.value) == (message.kind, message.value)
    assert DeadLetter("publish", "InvalidArticle", "the vector of task 'similar' is not finite") == message.letter


def test_a_records_trace_stands_behind_its_own_headers(raw: RawRecord, record: EnrichedRecord) -> None:
    """The size counts all of them."""
    ticket = finished(raw, record)
    ticket.trace = (("traceparent", b"00-2"),)
    message = encoder().outgoing(ticket)
    own = record_headers(raw, version=VERSION, tombstone=False)
    assert [*own, ("traceparent", b"00-2")] == message.headers
    headers = sum(len(name) + len(value or b"") + 10 for name, value in message.headers)
    assert len(b"key-1") + len(message.value or b"") + headers + 512 == message.size_bytes


@pytest.mark.parametrize(
    ("large", "omitted"),
    [
        ({"value": b"v" * 5000}, {"value": b"5000"}),
        ({"headers": (("x", b"h" * 5000),)}, {"value": b"13", "headers": b"5011"}),
        ({"key": b"k" * 5000}, {"value": b"13", "headers": b"60", "key": b"5000"}),
    ],
    ids=["value", "headers", "key"],
)
def test_dead_letter_above_the_bound_loses_value_headers_and_key(
    raw: RawRecord, large: dict[str, Any], omitted: dict[str, bytes]
) -> None:
    """In this order, and says how large they were; where it came from is always told."""
    raw = replace(raw, **large)
    message = encoder(max_dead_letter_bytes=MIN_MESSAGE_BYTES).outgoing(finished(raw, LETTER))
    assert (None if "key" in omitted else raw.key, None) == (message.key, message.value)
    said = ours(message.headers)
    assert omitted == {name.split(".")[2]: size for name, size in said.items() if name.endswith("omitted_bytes")}
    assert b"1042" == said["enricher.dlq.source.offset"]
    kept = [] if "headers" in omitted else list(raw.headers)
    assert kept == [each for each in message.headers if not each[0].startswith("enricher.")]


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
)
def test_every_message_fits_its_topic(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    topic: int,
    letter: DeadLetter,
    limit: int,
    document: bytes | None,
) -> None:
    """Whatever comes in, what goes out is within the bound, and whatever is missing is announced."""
    raw = RawRecord(Partition("t" * topic, 10**5), 2**43 - 1, key, value, tuple(headers), topic_id="i" * 22)
    article = Article("i" * 512, "", "b", document=document)
    record = plain_record(article, (), Coverage(tokens=1, windows=1, truncated=False))
    for outcome in (letter, record, Tombstone()):
        bounded = encoder(max_record_bytes=limit, max_dead_letter_bytes=limit)
        message = bounded.outgoing(finished(raw, outcome))
        assert message.size_bytes <= limit
        if message.kind == "dead_letter":
            said = ours(message.headers)
            assert (message.value == value) != ("enricher.dlq.value.omitted_bytes" in said)
            assert (message.key == key) != ("enricher.dlq.key.omitted_bytes" in said)
            kept = [(f"input.{name}" if name.startswith("enricher.") else name, value) for name, value in headers]
            assert (message.headers[: len(headers)] == kept) != ("enricher.dlq.headers.omitted_bytes" in said)


TOPIC_ID = "kz7-Q2mNTXS0b_1d0wY3sA"
NOT_FINITE = DeadLetter("inference", "NotFinite", "the scores of a window are not finite", attempts=2)


@given(any_text(max_size=20), st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1))
def test_record_id_is_the_standard_librarys_uuid5(topic: str, number: int, offset: int) -> None:
    """Topic, its id, partition and offset make it: the same on every machine, and no neighbour's."""
    name = f"{topic}/{TOPIC_ID}/{number}/{offset}"
    raw = RawRecord(Partition(topic, number), offset, None, None, topic_id=TOPIC_ID)
    found = dict(record_headers(raw, version=VERSION, tombstone=True))["enricher.record.id"]
    assert str(uuid5(RECORD_NAMESPACE, name)).encode() == found


@pytest.mark.parametrize("named", [[], [("enricher.dlq.source.topic.id", TOPIC_ID.encode())]])
def test_dead_letter_has_these_headers(raw: RawRecord, named: list[object]) -> None:
    """The input's own first, untouched, doubles and None kept; then ours, with the topic's id where it is known."""
    raw = replace(raw, topic_id=TOPIC_ID if named else None)
    expected = [
        *raw.headers,
        ("enricher.dlq.stage", b"inference"),
        ("enricher.dlq.error.type", b"NotFinite"),
        ("enricher.dlq.error.message", b"the scores of a window are not finite"),
        ("enricher.dlq.attempts", b"2"),
        ("enricher.dlq.source.topic", b"articles"),
        *named,
        ("enricher.dlq.source.partition", b"3"),
        ("enricher.dlq.source.offset", b"1042"),
        ("enricher.dlq.version", b"0.1.0"),
        ("enricher.dlq.time", b"2026-03-14T10:00:00.250Z"),
    ]
    assert expected == dead_letter_headers(raw, NOT_FINITE, version="0.1.0", time_s=1773482400.25, omitted_bytes=None)


def test_long_reason_is_cut_between_characters(raw: RawRecord) -> None:
    """1024 bytes of UTF-8 at most, and never half a character."""
    letter = DeadLetter("inference", "E" * 5000, "é" + "\U0001f68b" * 500)
    headers = dict(dead_letter_headers(raw, letter, version="0.1.0", time_s=0.0, omitted_bytes=None))
    assert ("é" + "\U0001f68b" * 255).encode() == headers["enricher.dlq.error.message"]
    assert headers["enricher.dlq.error.type"] == b"E" * MAX_REASON_BYTES


@given(
    text=st.text(st.characters(codec=None, categories=["L", "M", "N", "P", "S", "Z", "C"])), limit=st.integers(0, 40)
)
def test_clipped_text_is_the_longest_whole_beginning(text: str, limit: int) -> None:
    """Valid UTF-8, within the bound, and one character more would not fit."""
    cut = clip(text, limit)
    whole = text.encode("utf-8", "replace").decode()
    kept = cut.decode()
    assert len(cut) <= limit
    assert whole.startswith(kept)
    assert kept == whole or len(whole[: len(kept) + 1].encode()) > limit


# ---- the version of records

epochs, offsets, generations = (st.integers(0, most) for most in (MAX_EPOCH, MAX_OFFSET, MAX_GENERATION))
parts = st.tuples(epochs, offsets, generations)


def test_a_version_has_this_layout() -> None:
    """Bit by bit: indexes keep these numbers, so they must never change."""
    assert 0 == record_version(0, 0, 0)
    assert 1042 << 12 == record_version(0, 1042, 0)
    assert 3 << 55 | 1042 << 12 | 7 == record_version(3, 1042, 7)
    assert 2**63 - 1 == record_version(255, 2**43 - 1, 4095)


@given(one=parts, other=parts)
def test_versions_order_by_epoch_then_offset_then_generation(
    one: tuple[int, int, int], other: tuple[int, int, int]
) -> None:
    """No generation outweighs a newer input, and no offset a newer epoch."""
    assert (one < other) == (record_version(*one) < record_version(*other))


@pytest.mark.parametrize(
    ("outside", "name"),
    [
        ((256, 0, 0), "epoch"),
        ((-1, 0, 0), "epoch"),
        ((0, 2**43, 0), "source offset"),
        ((0, -1, 0), "source offset"),
        ((0, 0, 4096), "generation"),
        ((0, 0, -1), "generation"),
    ],
)
def test_a_part_outside_its_range_is_refused_by_its_name(outside: tuple[int, int, int], name: str) -> None:
    """It would change the other parts."""
    with pytest.raises(ValueError, match=f"the {name} of a version must be 0 to"):
        record_version(*outside)


def test_the_settings_have_the_ranges_of_a_version() -> None:
    """They are written down twice, because the settings must not load what records need."""
    fields = Settings.model_fields
    for group, name, most in (("kafka", "epoch", MAX_EPOCH), ("model", "generation", MAX_GENERATION)):
        kind = fields[group].annotation
        assert kind is not None
        assert not get_args(kind)
        bounds = kind.model_fields[name].metadata
        assert [Ge(0), Le(most)] == bounds


def headers_of(raw: RawRecord, outcome: Outcome, versioning: Versioning) -> dict[str, bytes | None]:
    """The headers of the message that a worker with these numbers makes."""
    return dict(encoder(versioning=versioning).outgoing(finished(raw, outcome)).headers)


def test_records_and_tombstones_have_a_version_and_dead_letters_none(raw: RawRecord, record: EnrichedRecord) -> None:
    """The same number for both, so that a tombstone deletes what is older and nothing that is newer."""
    versioning, wanted = Versioning(3, 7), b"%d" % (3 << 55 | 1042 << 12 | 7)
    for outcome in (record, Tombstone()):
        assert wanted == headers_of(raw, outcome, versioning)["enricher.version"]
    letter = DeadLetter("decode", "InvalidArticle", "body is missing")
    assert "enricher.version" not in headers_of(raw, letter, versioning)


@pytest.mark.parametrize("outcome", ["record", "tombstone"])
def test_an_offset_without_a_version_ends_the_worker_with_what_to_do(
    raw: RawRecord, record: EnrichedRecord, outcome: str
) -> None:
    """A record without a version, or with a wrong one, would be lost in an index."""
    beyond = replace(raw, offset=2**43)
    with pytest.raises(
        FatalError, match=r"articles\[3\]: the source offset .* not 8796093022208; .*kafka.epoch above 3"
    ):
        headers_of(beyond, record if outcome == "record" else Tombstone(), Versioning(3))


@pytest.mark.parametrize("article", ["none", "metadata"])
@pytest.mark.parametrize("by_language", [False, True])
def test_a_worker_notes_the_version_if_records_are_to_have_it(article: str, *, by_language: bool) -> None:
    """The setting `output.version` names it, whatever else of the article is kept for its record or the choice of tasks."""
    value = orjson.dumps({"id": "a-1", "body": "Oslo", "language": "nb"})
    raw = RawRecord(Partition("articles", 0), 1042, None, value)
    for on, wanted in ((False, None), (True, 1 << 55 | 1042 << 12 | 2)):
        settings = Settings.model_validate(
            {"kafka": {"epoch": 1}, "model": {"generation": 2}, "output": {"version": on, "article": article}}
        )
        found = article_in(read_function(settings, line_reader(settings), by_language=by_language)(raw))
        assert (wanted, "nb" if by_language else None) == (found.version, found.language)
        assert {} == found.metadata if article == "none" else {"language": "nb"} == found.metadata
