"""The headers beside each output: their bytes, their bounds, and the input's own among them."""

from __future__ import annotations

from uuid import UUID, uuid5

from hypothesis import given
from hypothesis import strategies as st

from enricher.codec import MAX_REASON_BYTES, clipped, dead_letter_headers, record_headers, record_id
from enricher.codec.headers import RECORD_NAMESPACE
from enricher.records import DeadLetter, Partition, RawRecord

LETTER = DeadLetter("inference", "NotFinite", "the scores of a window are not finite", attempts=2)


def test_record_has_these_headers(raw: RawRecord) -> None:
    """Name by name, byte by byte: others build on them."""
    expected = [
        ("enricher.source.topic", b"articles"),
        ("enricher.source.partition", b"3"),
        ("enricher.source.offset", b"1042"),
        ("enricher.record.id", b"5f489b73-79ad-57b8-a3f9-50718fb085ce"),
        ("enricher.schema.version", b"1"),
        ("content-type", b"application/json"),
    ]
    assert expected == record_headers(raw, tombstone=False)


def test_tombstone_has_the_same_headers_without_a_content_type(raw: RawRecord) -> None:
    """What has no content has no type of it."""
    assert record_headers(raw, tombstone=False)[:-1] == record_headers(raw, tombstone=True)


def test_record_id_is_the_same_on_every_machine_and_for_ever() -> None:
    """Written out, because consumers keep them: a change here would make every repeat look new."""
    assert record_id(Partition("articles", 3), 1042) == "5f489b73-79ad-57b8-a3f9-50718fb085ce"
    assert UUID(record_id(Partition("articles", 3), 1042)).version == 5


@given(st.text(max_size=20), st.integers(0, 2**31 - 1), st.integers(0, 2**63 - 1))
def test_record_id_is_the_standard_librarys_uuid5(topic: str, number: int, offset: int) -> None:
    """Of topic, partition and offset, however it is computed."""
    name = f"{topic}/{number}/{offset}"
    assert str(uuid5(RECORD_NAMESPACE, name)) == record_id(Partition(topic, number), offset)


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
    cut = clipped(text, limit)
    whole = text.encode("utf-8", "replace").decode()
    kept = cut.decode()
    assert len(cut) <= limit
    assert whole.startswith(kept)
    assert kept == whole or len(whole[: len(kept) + 1].encode()) > limit
