"""The headers beside each output: their bytes, their bounds, and the input's own among them."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID, uuid5

from hypothesis import given
from hypothesis import strategies as st
from support.texts import any_text

from enricher.worker.articles import MAX_REASON_BYTES, clip, dead_letter_headers, record_headers
from enricher.worker.articles.encoder import RECORD_NAMESPACE
from enricher.worker.records import DeadLetter, Partition, RawRecord

TOPIC_ID = "kz7-Q2mNTXS0b_1d0wY3sA"
VERSION = 1042 << 12
LETTER = DeadLetter("inference", "NotFinite", "the scores of a window are not finite", attempts=2)


def record_id(partition: Partition, offset: int, topic_id: str | None = None) -> str:
    """The id in the headers of a record that was made from this input."""
    raw = RawRecord(partition, offset, None, None, topic_id=topic_id)
    return dict(record_headers(raw, version=VERSION, tombstone=True))["enricher.record.id"].decode()


def test_record_has_these_headers(raw: RawRecord) -> None:
    """Name by name, byte by byte: others build on them."""
    expected = [
        ("enricher.source.topic", b"articles"),
        ("enricher.source.partition", b"3"),
        ("enricher.source.offset", b"1042"),
        ("enricher.record.id", b"5f489b73-79ad-57b8-a3f9-50718fb085ce"),
        ("enricher.version", b"4268032"),
        ("enricher.schema.version", b"1"),
        ("content-type", b"application/json"),
    ]
    assert expected == record_headers(raw, version=VERSION, tombstone=False)


def test_record_of_a_topic_whose_id_is_known_names_it_and_says_version_2(raw: RawRecord) -> None:
    """The id stands behind the name, and the record id is another one."""
    expected = [
        ("enricher.source.topic", b"articles"),
        ("enricher.source.topic.id", TOPIC_ID.encode()),
        ("enricher.source.partition", b"3"),
        ("enricher.source.offset", b"1042"),
        ("enricher.record.id", b"176f5b68-ac71-5223-8648-76f7f7335efa"),
        ("enricher.version", b"4268032"),
        ("enricher.schema.version", b"2"),
        ("content-type", b"application/json"),
    ]
    assert expected == record_headers(replace(raw, topic_id=TOPIC_ID), version=VERSION, tombstone=False)
    assert expected[:-1] == record_headers(replace(raw, topic_id=TOPIC_ID), version=VERSION, tombstone=True)


def test_tombstone_has_the_same_headers_without_a_content_type(raw: RawRecord) -> None:
    """What has no content has no type of it."""
    assert record_headers(raw, version=VERSION, tombstone=False)[:-1] == record_headers(
        raw, version=VERSION, tombstone=True
    )


def test_record_id_is_the_same_on_every_machine_and_for_ever() -> None:
    """Written out, because consumers keep them: a change here would make every repeat look new."""
    assert record_id(Partition("articles", 3), 1042) == "5f489b73-79ad-57b8-a3f9-50718fb085ce"
    assert record_id(Partition("articles", 3), 1042, TOPIC_ID) == "176f5b68-ac71-5223-8648-76f7f7335efa"
    assert UUID(record_id(Partition("articles", 3), 1042)).version == 5


@given(
    any_text(max_size=20),
    st.sampled_from([None, TOPIC_ID]),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 1),
)
def test_record_id_is_the_standard_librarys_uuid5(topic: str, topic_id: str | None, number: int, offset: int) -> None:
    """Of topic, its id where that is known, partition and offset, however it is computed."""
    name = "/".join([topic, *([topic_id] if topic_id else []), str(number), str(offset)])
    assert str(uuid5(RECORD_NAMESPACE, name)) == record_id(Partition(topic, number), offset, topic_id)


def test_record_id_is_new_where_the_topic_was_made_again_and_else_the_same_at_every_read(raw: RawRecord) -> None:
    """A consumer that drops repeats drops those, and keeps the records of a new topic at the same offsets."""
    topic_ids = [None, TOPIC_ID, "9KcV2hYVQnCmO2yN8uV4Qg", TOPIC_ID, None]
    ids = [
        dict(record_headers(replace(raw, topic_id=each), version=VERSION, tombstone=False))["enricher.record.id"]
        for each in topic_ids
    ]
    assert (ids[0], ids[1]) == (ids[4], ids[3])
    assert len(set(ids)) == 3


def test_record_ids_of_neighbours_differ() -> None:
    """Topic, partition and offset all count, and do not run into one another."""
    places = [("a", 1, 11), ("a", 11, 1), ("a", 1, 1), ("a-1", 1, 1), ("a/1", 1, 1), ("a", 111, 0)]
    assert len(places) == len({record_id(Partition(topic, index), offset) for topic, index, offset in places})


def test_dead_letter_has_these_headers(raw: RawRecord) -> None:
    """The input's own first, untouched, doubles and None kept; then ours."""
    expected = [
        *raw.headers,
        ("enricher.dlq.stage", b"inference"),
        ("enricher.dlq.error.type", b"NotFinite"),
        ("enricher.dlq.error.message", b"the scores of a window are not finite"),
        ("enricher.dlq.attempts", b"2"),
        ("enricher.dlq.source.topic", b"articles"),
        ("enricher.dlq.source.partition", b"3"),
        ("enricher.dlq.source.offset", b"1042"),
        ("enricher.dlq.version", b"0.1.0"),
        ("enricher.dlq.time", b"2026-03-14T10:00:00.250Z"),
    ]
    assert expected == dead_letter_headers(raw, LETTER, version="0.1.0", time_s=1773482400.25, omitted_bytes=None)


def test_headers_of_the_input_cannot_be_taken_for_ours(raw: RawRecord) -> None:
    """They keep their values and their order under names from which the input's can be restored."""
    names = [
        "enricher.dlq.value.omitted_bytes",
        "input.enricher.x",
        "input.input.enricher.x",
        "enricherless",
        "input.x",
    ]
    forged = replace(raw, headers=tuple((name, b"%d" % index) for index, name in enumerate(names)))
    headers = dead_letter_headers(forged, LETTER, version="0.1.0", time_s=0.0, omitted_bytes=None)
    assert [
        ("input.enricher.dlq.value.omitted_bytes", b"0"),
        ("input.input.enricher.x", b"1"),
        ("input.input.input.enricher.x", b"2"),
        ("enricherless", b"3"),
        ("input.x", b"4"),
    ] == headers[: len(names)]
    assert headers[len(names)][0] == "enricher.dlq.stage"


def test_dead_letter_of_a_topic_whose_id_is_known_names_it(raw: RawRecord) -> None:
    """Nothing else differs."""
    without = dead_letter_headers(raw, LETTER, version="0.1.0", time_s=0.0, omitted_bytes=None)
    known = replace(raw, topic_id=TOPIC_ID)
    headers = dead_letter_headers(known, LETTER, version="0.1.0", time_s=0.0, omitted_bytes=None)
    place = headers.index(("enricher.dlq.source.topic", b"articles"))
    assert headers.pop(place + 1) == ("enricher.dlq.source.topic.id", TOPIC_ID.encode())
    assert without == headers


def test_value_left_out_is_said_with_its_size(raw: RawRecord) -> None:
    """Zero bytes left out is not the same as nothing left out."""
    headers = dead_letter_headers(raw, LETTER, version="0.1.0", time_s=0.0, omitted_bytes=0)
    assert headers[-1] == ("enricher.dlq.value.omitted_bytes", b"0")


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
