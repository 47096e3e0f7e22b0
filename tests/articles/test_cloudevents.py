"""CloudEvents: the headers by which our records are events."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import any_text

from enricher.worker.articles import EventHeaders, default_source, record_headers
from enricher.worker.records import Partition, RawRecord

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
