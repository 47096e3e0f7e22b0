"""Which schema a value names, and that nothing damaged gets through."""

from __future__ import annotations

from uuid import UUID

import pytest

from enricher.errors import InvalidArticle
from enricher.worker.articles.envelope import HEADER, read_frame
from enricher.worker.records import Headers

GUID = UUID("89791762-2336-4186-9674-299b90a802e2")


def reason_of(value: bytes, headers: Headers = ()) -> str:
    """Why a value is refused."""
    with pytest.raises(InvalidArticle) as caught:
        read_frame(value, headers)
    assert "payload" not in str(caught.value), "reasons reach logs"
    return str(caught.value)


BY_GUID, BY_SEVEN, BY_EIGHT = b"\x01" + GUID.bytes, b"\x00\x00\x00\x00\x07", b"\x00\x00\x00\x00\x08"


@pytest.mark.parametrize(
    ("value", "headers", "schema", "payload"),
    [
        (b"\x00\x00\x00\x01\x02payload", (), "id 258", b"payload"),
        (b"\x00\x7f\xff\xff\xff", (), "id 2147483647", b""),
        (BY_GUID + b"payload", (), f"guid {GUID}", b"payload"),
        (b"payload", ((HEADER, BY_GUID),), f"guid {GUID}", b"payload"),
        (b"payload", ((HEADER, BY_SEVEN),), "id 7", b"payload"),
        # Message indexes in the header are moved to where a prefix has them.
        (b"payload", ((HEADER, BY_GUID + b"\x04\x02\x00"),), f"guid {GUID}", b"\x04\x02\x00payload"),
        # The header wins over a prefix and over JSON: the value is then not looked at.
        (BY_SEVEN + b"payload", ((HEADER, BY_GUID),), f"guid {GUID}", BY_SEVEN + b"payload"),
        (b"{}", ((HEADER, BY_SEVEN),), "id 7", b"{}"),
        # The first of several headers counts, and one without a value does not.
        (b"p", (("x", None), (HEADER, BY_SEVEN), (HEADER, BY_EIGHT)), "id 7", b"p"),
        (BY_EIGHT + b"p", ((HEADER, None), (HEADER, BY_SEVEN)), "id 8", b"p"),
    ],
)
def test_a_frame_names_its_schema(value: bytes, headers: Headers, schema: str, payload: bytes) -> None:
    """Confluent's deserializers read it alike."""
    frame = read_frame(value, headers)
    assert frame is not None
    assert (schema, payload) == (str(frame.reference), frame.payload)


def test_negative_ids_are_refused_without_asking() -> None:
    """A registry answers them as if they were another path, which looks like an outage and would be waited for."""
    assert "the schema id is -1, which no registry gives" in reason_of(b"\x00\xff\xff\xff\xff")


@pytest.mark.parametrize("value", [b"{}", b"[]", b" {}", b"\n{}", b"\t{}", b"\r{}", b"\xef\xbb\xbf{}"])
def test_what_begins_as_json_has_no_frame(value: bytes) -> None:
    """White space and a byte order mark may come before JSON."""
    assert read_frame(value, ()) is None


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"", "empty"),
        (b"\x00\x00\x00\x01", "at least 5 bytes, found 4"),
        (b"\x01" + GUID.bytes[:15], "at least 17 bytes, found 16"),
        (b"\x02\x00", "begins with byte 02: expected 00"),
        (b"\x03\x00" + GUID.bytes, "begins with byte 03: expected 00"),
        (b"Obj\x01", "begins with byte 4f: expected 00"),
    ],
)
def test_a_damaged_frame_is_refused_with_what_was_expected(value: bytes, said: str) -> None:
    """Never a guess, never another error."""
    assert said in reason_of(value)


@pytest.mark.parametrize("header", [b"", b"\x00\x00", b"\x01" + GUID.bytes[:15], b"\x03" + GUID.bytes, b"{}"])
def test_a_damaged_header_is_refused_by_its_name(header: bytes) -> None:
    """Even if the value has a prefix that could be read."""
    assert reason_of(b"\x00\x00\x00\x00\x07payload", ((HEADER, header),)).startswith(f"header {HEADER} ")
