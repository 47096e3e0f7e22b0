"""Which schema a value names, that nothing damaged gets through, and the headers by which our records are CloudEvents."""

from __future__ import annotations

import re
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import any_text

from enricher.errors import InvalidArticle
from enricher.worker.articles import EventHeaders, default_source, record_headers
from enricher.worker.articles.envelope import HEADER, read_frame
from enricher.worker.records import Headers, Partition, RawRecord

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


# ---- events


VERSION = 1042 << 12


@pytest.mark.parametrize("article_id", ["a\nb", "\x00", "\x7f", "\x85", "\ufdd0", "\uffff", "\U0010fffe", "\ud83d"])
def test_id_that_no_attribute_may_contain_is_not_the_subject(raw: RawRecord, article_id: str) -> None:
    """The event stays a valid one, and the id is in its data."""
    made = EventHeaders("/s").of_record(record_headers(raw, version=VERSION, tombstone=False), article_id)
    assert "ce_subject" not in dict(made)


@pytest.mark.parametrize(("group", "source"), [("news", "/enricher/news"), ("a b/æ%", "/enricher/a%20b%2F%C3%A6%25")])
def test_default_source_is_a_uri(group: str, source: str) -> None:
    """Group ids may contain anything."""
    assert source == default_source(group)


# The rules of the specification for attributes, independent of the code: see its sections 3 and "Type System".
_PLACE = Partition("articles", 3), 1042
ATTRIBUTE_NAME = re.compile(r"[a-z0-9]{1,20}")
URI_REFERENCE = re.compile(r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]+")


def is_string(text: str) -> bool:
    """Whether the specification's String may have this value."""
    points = [ord(character) for character in text]
    return not any(
        point <= 0x1F or 0x7F <= point <= 0x9F or 0xD800 <= point <= 0xDFFF or 0xFDD0 <= point <= 0xFDEF
        or point & 0xFFFE == 0xFFFE
        for point in points
    )  # fmt: skip


@given(article_id=st.text(st.characters(), min_size=1, max_size=9), group=any_text(min_size=1, max_size=9))
def test_every_record_is_an_event(article_id: str, group: str) -> None:
    """Its headers keep the specification's rules."""
    raw = RawRecord(*_PLACE, None, b"{}")
    own = record_headers(raw, version=VERSION, tombstone=False)
    made = EventHeaders(default_source(group)).of_record(own, article_id)
    attributes = {name.removeprefix("ce_"): (value or b"").decode() for name, value in made}
    assert len(attributes) == len(made)
    assert all(ATTRIBUTE_NAME.fullmatch(name) and value and is_string(value) for name, value in attributes.items())
    assert URI_REFERENCE.fullmatch(attributes["source"])
    assert attributes.get("subject", article_id) == article_id
    assert ("subject" in attributes) == is_string(article_id)
    assert dict(own)["enricher.record.id"] == attributes["id"].encode()
    assert ("1.0", "enricher.entities.v1") == (attributes["specversion"], attributes["type"])
