"""CloudEvents: what is an event and what is a broken one, and the headers by which our records are events."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import any_text

from enricher.errors import InvalidArticle
from enricher.worker.articles import EventHeaders, default_source, record_headers
from enricher.worker.articles.envelope import Event, unwrap
from enricher.worker.records import Headers, Partition, RawRecord

VERSION = 1042 << 12
STRUCTURED = (("content-type", b"application/cloudevents+json"),)
ARTICLE = {"id": "a-1", "body": "Kari i Oslo"}
EVENT = {
    "specversion": "1.0",
    "id": "e-1",
    "source": "/newsroom",
    "type": "org.example.article",
    "time": "2026-03-14T10:00:00Z",
    "data": ARTICLE,
}
BINARY = {
    "ce_specversion": b"1.0",
    "ce_id": b"e-1",
    "ce_source": b"/newsroom",
    "ce_type": b"org.example.article",
    "ce_time": b"2026-03-14T10:00:00Z",
}


def structured(**changes: object) -> bytes:
    """An event as JSON; attributes that are changed to `...` are left out."""
    return json.dumps({name: value for name, value in (EVENT | changes).items() if value is not ...}).encode()


def binary(**changes: object) -> Headers:
    """The headers of an event, in the order of a dictionary; those that are changed to `...` are left out."""
    changed: dict[str, Any] = {**BINARY, **changes}
    return tuple((name, value) for name, value in changed.items() if value is not ...)


@pytest.mark.parametrize(
    "headers",
    [
        (),
        (("traceparent", b"00-1"), ("tracestate", b""), ("x", None), ("x", b"\xff")),
        (("content-type", b"application/json"),),
        (("content-type", None),),
        (("content-type", b"\xff"),),
        (("content-type", b""),),
        (("ce_id", b"e-1"), ("ce_type", b"t")),
        (("CE_SPECVERSION", b"1.0"),),
    ],
)
def test_record_whose_headers_say_nothing_of_events_is_none(headers: Headers) -> None:
    """The specification needs `ce_specversion` or a media type of events."""
    assert unwrap(b"{}", headers) is None


@pytest.mark.parametrize(
    "media_type",
    [
        b"application/cloudevents+json",
        b"application/cloudevents+json; charset=UTF-8",
        b"  Application/CloudEvents+JSON ;x=y",
    ],
)
def test_structured_event_is_read(media_type: bytes) -> None:
    """Whatever the case and the parameters of its media type, and whatever else the headers say."""
    expected = Event("e-1", "/newsroom", "org.example.article", "2026-03-14T10:00:00Z", data=None, document=ARTICLE)
    for prefix in (b"\xef\xbb\xbf", b"\0\0\0\0\x07", b"\0\0\0\0\x07\xef\xbb\xbf"):  # as those of an article
        assert expected == unwrap(prefix + structured(), (("content-type", media_type),))
    assert expected == unwrap(structured(), (("ce_id", b"\xff"), ("content-type", media_type)))
    assert expected == unwrap(structured(extension=1, subject=None), (("content-type", media_type),))


def test_binary_data_of_a_structured_event_is_unpacked() -> None:
    """Its bytes may be in any format, which the event names."""
    value = structured(data=..., data_base64=b64encode(b"\0\xff").decode(), datacontenttype="application/avro")
    event = unwrap(value, STRUCTURED)
    assert event is not None
    assert (b"\0\xff", None, "application/avro") == (event.data, event.document, event.content_type)


def test_binary_event_is_read() -> None:
    """The value is the data, as it is; the order of headers means nothing."""
    expected = Event(
        "e-1", "/newsroom", "org.example.article", "2026-03-14T10:00:00Z", b"\0data", content_type="application/avro"
    )
    headers = binary(**{"content-type": b"application/avro"})
    assert expected == unwrap(b"\0data", headers)
    assert expected == unwrap(b"\0data", headers[::-1])


def test_optional_attributes_may_be_absent_or_null() -> None:
    """A null value of JSON means the same as an absent one."""
    for event in (
        unwrap(structured(time=...), STRUCTURED),
        unwrap(structured(time=None), STRUCTURED),
        unwrap(b"{}", binary(ce_time=...)),
        unwrap(b"{}", binary(ce_time=None)),
    ):
        assert event is not None
        assert event.time is None


def test_last_of_doubled_headers_counts() -> None:
    """As everywhere in the contracts: whoever repairs a record appends."""
    event = unwrap(b"{}", (*binary(), ("ce_id", b"\xff"), ("ce_id", b"e-2")))
    assert event is not None
    assert event.id == "e-2"
    with pytest.raises(InvalidArticle, match=r"^ce_id is missing$"):
        unwrap(b"{}", (*binary(), ("ce_id", None)))


@pytest.mark.parametrize("name", ["specversion", "id", "source", "type"])
def test_event_without_a_required_attribute_is_refused_by_its_name(name: str) -> None:
    """Absent, null or empty, in both modes: the publisher reads which one it is."""
    for wrong, reason in ((..., "missing"), (None, "missing"), ("", "empty"), (7, "not a string")):
        with pytest.raises(InvalidArticle, match=f"^{name} of the event is {reason}$"):
            unwrap(structured(**{name: wrong}), STRUCTURED)
    for header, reason in ((None, "missing"), (b"", "empty"), (b"\xff", "not UTF-8")):
        with pytest.raises(InvalidArticle, match=f"^ce_{name} is {reason}$"):
            unwrap(b"{}", binary(**{f"ce_{name}": header}))


@pytest.mark.parametrize("version", ["0.3", "2.0", "1", "1.", "1.0 ", "1.0\n", "10", "v1.0", "1.\u0661"])
def test_other_versions_than_1_are_refused(version: str) -> None:
    """Their attributes may mean something else; later minor versions only add optional ones."""
    for minor in ("1.0", "1.1", "1.12"):
        assert unwrap(structured(specversion=minor), STRUCTURED) is not None
        assert unwrap(b"{}", binary(ce_specversion=minor.encode())) is not None
    with pytest.raises(InvalidArticle, match=r"^specversion of the event is not 1\.0"):
        unwrap(structured(specversion=version), STRUCTURED)
    with pytest.raises(InvalidArticle, match=r"^ce_specversion is not 1\.0"):
        unwrap(b"{}", binary(ce_specversion=version.encode()))


@pytest.mark.parametrize(
    ("media_type", "reason"),
    [
        (b"application/cloudevents-batch+json", "a batch of events"),
        (b"APPLICATION/CLOUDEVENTS-BATCH+JSON; charset=utf-8", "a batch of events"),
        (b"application/cloudevents+avro", "use application/cloudevents\\+json"),
        (b"application/cloudevents", "use application/cloudevents\\+json"),
        (b"application/cloudevents+json\xff", "use application/cloudevents\\+json"),
    ],
)
def test_other_formats_of_events_are_refused(media_type: bytes, reason: str) -> None:
    """Even if the headers of binary mode are there too: the media type decides."""
    with pytest.raises(InvalidArticle, match=reason):
        unwrap(structured(), binary(**{"content-type": media_type}))


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "not the JSON of an event"),
        (b"\0", "not the JSON of an event"),
        (b"\xff{}", "not the JSON of an event"),
        (b"[" * 100_000, "not the JSON of an event"),
        (b"[]", "not a JSON object"),
        (b'"secret"', "not a JSON object"),
        (structured(data=...), "the event has no data"),
        (structured(data=None), "data of the event is not a JSON object"),
        (structured(data="secret"), "data of the event is not a JSON object"),
        (structured(data=[ARTICLE]), "data of the event is not a JSON object"),
        (structured(data_base64="e30="), "both data and data_base64"),
        (structured(data=..., data_base64="e30"), "data_base64 of the event is not base64"),
        (structured(data=..., data_base64="secret!"), "data_base64 of the event is not base64"),
        (structured(data=..., data_base64="\u00e6"), "data_base64 of the event is not base64"),
        (structured(data=..., data_base64={}), "data_base64 of the event is not base64"),
        (structured(data=..., data_base64=7), "data_base64 of the event is not base64"),
        (structured(time=7), "time of the event is not a string"),
        (structured(datacontenttype=[]), "datacontenttype of the event is not a string"),
    ],
)
def test_broken_structured_event_is_refused(value: bytes, reason: str) -> None:
    """With the rule that it breaks, and nothing of its text."""
    with pytest.raises(InvalidArticle, match=reason) as refused:
        unwrap(value, STRUCTURED)
    assert "secret" not in str(refused.value)
    assert refused.value.__cause__ is None


header_values = st.none() | st.binary(max_size=20) | st.sampled_from([*BINARY.values(), STRUCTURED[0][1], b"x" * 10**6])
header_names = st.sampled_from(["content-type", "ce_data", "\0", "é", *BINARY]) | any_text(max_size=3)


@given(
    value=st.binary(max_size=60) | st.sampled_from([structured(), structured(data=..., data_base64="e30=")]),
    headers=st.lists(st.tuples(header_names, header_values), max_size=9).map(tuple),
    cut=st.integers(0, 100),
)
def test_any_headers_and_value_make_an_event_or_none_or_a_refusal(value: bytes, headers: Headers, cut: int) -> None:
    """Never another error, and an event always has what it must have."""
    event = None
    with suppress(InvalidArticle):
        event = unwrap(value[:cut] if cut % 2 else value, headers)
    if event is not None:
        assert event.id
        assert event.source
        assert event.type
        assert (event.data is None) == isinstance(event.document, dict)


def test_record_has_these_event_headers(raw: RawRecord) -> None:
    """Name by name, byte by byte, the same on every attempt: others build on them."""
    expected = [
        ("ce_specversion", b"1.0"),
        ("ce_id", b"5f489b73-79ad-57b8-a3f9-50718fb085ce"),
        ("ce_source", b"/enricher/g"),
        ("ce_type", b"enricher.entities.v1"),
        ("ce_dataschema", b"urn:enricher:schema:enriched-record:1"),
        ("ce_subject", "æ 1".encode()),
    ]
    made = EventHeaders(default_source("g"))
    for _ in range(2):
        assert expected == made.of_record(record_headers(raw, version=VERSION, tombstone=False), "æ 1")


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
def test_every_record_is_an_event_that_the_reader_reads(article_id: str, group: str) -> None:
    """Its headers keep the specification's rules, and another worker understands them."""
    raw = RawRecord(*_PLACE, None, b"{}")
    own = record_headers(raw, version=VERSION, tombstone=False)
    made = EventHeaders(default_source(group)).of_record(own, article_id)
    attributes = {name.removeprefix("ce_"): (value or b"").decode() for name, value in made}
    assert len(attributes) == len(made)
    assert all(ATTRIBUTE_NAME.fullmatch(name) and value and is_string(value) for name, value in attributes.items())
    assert URI_REFERENCE.fullmatch(attributes["source"])
    assert attributes.get("subject", article_id) == article_id
    assert ("subject" in attributes) == is_string(article_id)
    event = unwrap(b"value", (*own, *made))
    expected = Event(
        dict(own)["enricher.record.id"].decode(),
        attributes["source"],
        "enricher.entities.v1",
        None,
        b"value",
        content_type="application/json",
    )
    assert expected == event
