"""Frames: which schema a value names, and that nothing damaged gets through."""

from __future__ import annotations

import tracemalloc
import zlib
from uuid import UUID

import pytest

from enricher.errors import InvalidArticle
from enricher.worker.articles.envelope import HEADER, Frame, read_frame
from enricher.worker.articles.schemas import SchemaRef
from enricher.worker.records import Headers

GUID = UUID("89791762-2336-4186-9674-299b90a802e2")
LIMIT = 400_000


def frame_of(value: bytes, headers: Headers = ()) -> Frame | None:
    """The frame under the usual limit."""
    return read_frame(value, headers, max_payload_bytes=LIMIT)


def reason_of(value: bytes, headers: Headers = ()) -> str:
    """Why a value is refused."""
    with pytest.raises(InvalidArticle) as caught:
        frame_of(value, headers)
    return str(caught.value)


def test_confluents_prefix_has_an_id() -> None:
    """It is big-endian."""
    assert Frame(SchemaRef("id", "258"), b"payload") == frame_of(b"\x00\x00\x00\x01\x02payload")
    assert Frame(SchemaRef("id", "2147483647"), b"") == frame_of(b"\x00\x7f\xff\xff\xff")


def test_negative_ids_are_refused_without_asking() -> None:
    """A registry answers them as if they were another path, which looks like an outage and would be waited for."""
    assert "the schema id is -1, which no registry gives" in reason_of(b"\x00\xff\xff\xff\xff")


def test_confluents_prefix_may_have_a_guid() -> None:
    """Its clients read that from the value too."""
    assert Frame(SchemaRef("guid", str(GUID)), b"payload") == frame_of(b"\x01" + GUID.bytes + b"payload")


def test_confluents_header_has_a_guid_and_the_value_is_the_payload() -> None:
    """The header's name is Confluent's."""
    assert Frame(SchemaRef("guid", str(GUID)), b"payload") == frame_of(b"payload", ((HEADER, b"\x01" + GUID.bytes),))
    assert HEADER == "__value_schema_id"


def test_message_indexes_in_the_header_are_moved_before_the_payload() -> None:
    """Where they are with a prefix, so that a decoder need not know."""
    header = b"\x01" + GUID.bytes + b"\x04\x02\x00"
    assert Frame(SchemaRef("guid", str(GUID)), b"\x04\x02\x00payload") == frame_of(b"payload", ((HEADER, header),))


def test_a_header_may_have_an_id() -> None:
    """Confluent's deserializers read either byte from the header."""
    assert Frame(SchemaRef("id", "7"), b"payload") == frame_of(b"payload", ((HEADER, b"\x00\x00\x00\x00\x07"),))


def test_the_header_wins_over_a_prefix_and_over_json() -> None:
    """As in Confluent's deserializers: the value is then not looked at."""
    prefixed = b"\x00\x00\x00\x00\x07payload"
    assert Frame(SchemaRef("guid", str(GUID)), prefixed) == frame_of(prefixed, ((HEADER, b"\x01" + GUID.bytes),))
    assert Frame(SchemaRef("id", "7"), b"{}") == frame_of(b"{}", ((HEADER, b"\x00\x00\x00\x00\x07"),))


def test_the_first_of_several_headers_counts_and_one_without_a_value_does_not() -> None:
    """As in Confluent's deserializers."""
    seven, eight = b"\x00\x00\x00\x00\x07", b"\x00\x00\x00\x00\x08"
    assert Frame(SchemaRef("id", "7"), b"p") == frame_of(b"p", (("x", None), (HEADER, seven), (HEADER, eight)))
    assert Frame(SchemaRef("id", "8"), b"p") == frame_of(eight + b"p", ((HEADER, None), (HEADER, seven)))


def test_glues_frame_has_a_uuid_and_a_payload_that_may_be_packed() -> None:
    """Both compressions that Glue has."""
    expected = Frame(SchemaRef("glue", str(GUID)), b"payload")
    assert expected == frame_of(b"\x03\x00" + GUID.bytes + b"payload")
    assert expected == frame_of(b"\x03\x05" + GUID.bytes + zlib.compress(b"payload"))


@pytest.mark.parametrize("value", [b"{}", b"[]", b" {}", b"\n{}", b"\t{}", b"\r{}", b"\xef\xbb\xbf{}"])
def test_what_begins_as_json_has_no_frame(value: bytes) -> None:
    """White space and a byte order mark may come before JSON."""
    assert frame_of(value) is None


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"", "empty"),
        (b"\x00\x00\x00\x01", "at least 5 bytes, found 4"),
        (b"\x01" + GUID.bytes[:15], "at least 17 bytes, found 16"),
        (b"\x03\x00" + GUID.bytes[:15], "at least 18 bytes, found 17"),
        (b"\x03", "at least 18 bytes, found 1"),
        (b"\x02\x00", "begins with byte 02: expected 00"),
        (b"Obj\x01", "begins with byte 4f: expected 00"),
        (b"\x03\x01" + GUID.bytes, "compression is 01: expected 00 (none) or 05 (zlib)"),
        (b"\x03\x05" + GUID.bytes + b"payload", "not zlib"),
        (b"\x03\x05" + GUID.bytes, "ends too early"),
        (b"\x03\x05" + GUID.bytes + zlib.compress(b"payload")[:-1], "ends too early"),
        (b"\x03\x05" + GUID.bytes + zlib.compress(b"payload") + b"more", "4 bytes follow"),
    ],
)
def test_a_damaged_frame_is_refused_with_what_was_expected(value: bytes, said: str) -> None:
    """Never a guess, never another error."""
    assert said in reason_of(value)


@pytest.mark.parametrize("header", [b"", b"\x00\x00", b"\x01" + GUID.bytes[:15], b"\x03" + GUID.bytes, b"{}"])
def test_a_damaged_header_is_refused_by_its_name(header: bytes) -> None:
    """Even if the value has a prefix that could be read."""
    assert reason_of(b"\x00\x00\x00\x00\x07payload", ((HEADER, header),)).startswith(f"header {HEADER} ")


def test_a_reason_contains_nothing_of_the_payload() -> None:
    """Reasons reach logs."""
    for value in (
        b"secret",
        b"\x03\x05" + GUID.bytes + b"secret",
        b"\x03\x05" + GUID.bytes + zlib.compress(b"x") + b"secret",
    ):
        assert "secret" not in reason_of(value)


def test_a_payload_may_unpack_to_the_limit_and_no_further() -> None:
    """A bomb of 25 times the limit takes no more memory than the limit."""
    head = b"\x03\x05" + GUID.bytes
    assert frame_of(head + zlib.compress(bytes(LIMIT))) == Frame(SchemaRef("glue", str(GUID)), bytes(LIMIT))
    bomb = head + zlib.compress(bytes(25 * LIMIT))
    tracemalloc.start()
    try:
        assert f"more than {LIMIT} bytes" in reason_of(bomb)
        assert tracemalloc.get_traced_memory()[1] < 4 * LIMIT + len(bomb)
    finally:
        tracemalloc.stop()
