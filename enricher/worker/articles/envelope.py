"""Reads what is around a document in a record: the frame that names its schema, and the CloudEvent that carries it.

Frames are those of Confluent, as a prefix or in a header:

| where | bytes |
|---|---|
| value | `00`, schema id (4 bytes, big-endian), payload |
| value | `01`, GUID (16 bytes), payload |
| header `__value_schema_id` | either prefix without the payload, which is the value |

The message indexes of Protobuf follow Confluent's id or GUID, in the header too. If there is such a header, the value is not
looked at, as in Confluent's deserializers. A value that begins as JSON does has no frame. Nothing else is guessed.

Events are those of CloudEvents 1.0: structured and binary mode are read, the headers of binary mode are made. The rules are
those of the specification's Kafka binding and JSON format. `reader` decides where the event carries the article and which
attributes become fields. No message contains text of an event.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote
from uuid import UUID

import orjson

from enricher.errors import InvalidArticle
from enricher.worker.articles.schemas import SchemaRef
from enricher.worker.records import Headers

HEADER = "__value_schema_id"
"""Confluent's header for the schema of a value. If a record has several, the first counts."""

ID_MAGIC = b"\0"
"""The first byte of Confluent's prefix with a schema id. JSON never begins with it."""

ID_PREFIX_BYTES = 5
"""The length of Confluent's prefix with a schema id."""

FIRST_MESSAGE = b"\0"
"""Message indexes behind the prefix, for Protobuf: the short form of [0], which every serialiser writes."""

MAX_SCHEMA_ID = 2**31 - 1
"""The id has four bytes with a sign."""

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
"""Some writers begin JSON with it (RFC 8259, section 8.1)."""

_GUID_END = 17
_JSON_BEGINS = b"{[ \t\r\n\xef"
"""The bytes with which JSON begins; the last one begins a byte order mark in UTF-8."""

EVENT_TYPE = "enricher.entities.v1"
"""The type of our events: the entities of an article, as version 1 of the value."""

DATA_SCHEMA = "urn:enricher:schema:enriched-record:1"

_PREFIX = "ce_"
_SPEC_VERSION = "ce_specversion"
_CONTENT_TYPE = "content-type"
_STRUCTURED = b"application/cloudevents"
_JSON_EVENT = b"application/cloudevents+json"
_BATCH = b"application/cloudevents-batch"
_VERSION_1 = re.compile(r"1\.[0-9]+", re.ASCII)
# What a string of the specification must not contain: control characters, surrogates, noncharacters.
_FORBIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef"
    + "".join(chr(plane << 16 | last) for plane in range(17) for last in (0xFFFE, 0xFFFF))
    + "]"
)


class Frame(NamedTuple):
    """A framed value. The payload of Protobuf begins with its message indexes, wherever they were."""

    reference: SchemaRef
    payload: bytes


def read_frame(value: bytes, headers: Headers) -> Frame | None:
    """The frame of a value; None if it has none. Raises InvalidArticle if the frame is damaged."""
    for name, content in headers:
        if name == HEADER:
            if content is None:
                break
            frame = _confluent_frame(content, f"header {HEADER}")
            return Frame(frame.reference, frame.payload + value)
    if not value:
        raise InvalidArticle("value is empty")
    magic = value[:1]
    # Nearly all values begin so. A call of `_confluent_frame` would take as long as the rest.
    if magic == ID_MAGIC and len(value) >= ID_PREFIX_BYTES:
        return Frame(_by_id(value[1:ID_PREFIX_BYTES]), value[ID_PREFIX_BYTES:])
    return None if magic in _JSON_BEGINS else _confluent_frame(value, "value")


def id_prefix(schema_id: int) -> bytes:
    """Confluent's prefix for a value. The id is from 0 to `MAX_SCHEMA_ID`."""
    return ID_MAGIC + schema_id.to_bytes(ID_PREFIX_BYTES - 1, "big", signed=True)


def json_part(value: bytes) -> bytes:
    """The value without a byte order mark, and without a schema id prefix of Confluent."""
    if value[:1] == ID_MAGIC:
        value = value[ID_PREFIX_BYTES:]
    return value.removeprefix(BYTE_ORDER_MARK)


def _confluent_frame(framed: bytes, where: str) -> Frame:
    """The frame that Confluent's serializer wrote into a value or header."""
    magic = framed[:1]
    if magic == ID_MAGIC:
        if len(framed) < ID_PREFIX_BYTES:
            raise _too_short(
                framed, ID_PREFIX_BYTES, f"{where} begins with byte 00: Confluent's prefix, a schema id of 4 bytes"
            )
        return Frame(_by_id(framed[1:ID_PREFIX_BYTES]), framed[ID_PREFIX_BYTES:])
    if magic == b"\x01":
        if len(framed) < _GUID_END:
            raise _too_short(
                framed, _GUID_END, f"{where} begins with byte 01: Confluent's prefix, a schema GUID of 16 bytes"
            )
        return Frame(SchemaRef("guid", str(UUID(bytes=framed[1:_GUID_END]))), framed[_GUID_END:])
    begins = f"begins with byte {magic.hex()}" if magic else "is empty"
    json = " or JSON" if where == "value" else ""
    raise InvalidArticle(f"{where} {begins}: expected 00 (Confluent's schema id), 01 (Confluent's GUID){json}")


@lru_cache(maxsize=1024)
def _by_id(number: bytes) -> SchemaRef:
    schema_id = int.from_bytes(number, "big", signed=True)
    if schema_id < 0:  # registries answer such a request as if it were for another path
        raise InvalidArticle(f"the schema id is {schema_id}, which no registry gives: is this Confluent's prefix?")
    return SchemaRef("id", str(schema_id))


def _too_short(framed: bytes, expected_bytes: int, what: str) -> InvalidArticle:
    return InvalidArticle(f"{what}; expected at least {expected_bytes} bytes, found {len(framed)}")


@dataclass(frozen=True, slots=True)
class Event:
    """An event around an article; attributes that it lacks are None.

    `data`: the article's bytes; in structured mode with a JSON object as data, `document` is that object instead.
    `content_type` is that of the data.
    """

    id: str
    source: str
    type: str
    time: str | None
    data: bytes | None
    document: object = None
    content_type: str | None = None


def unwrap(value: bytes, headers: Headers) -> Event | None:
    """The event in a record; None if its headers do not make it one. Raises InvalidArticle if the event is broken.

    If several headers have one name, the last counts. `value` is parsed in structured mode, so check its size before.
    """
    named = dict(headers)
    media_type = named.get(_CONTENT_TYPE)
    if media_type is not None and media_type.lstrip()[: len(_STRUCTURED)].lower() == _STRUCTURED:
        return _structured_event(value, media_type)
    if _SPEC_VERSION in named:
        return _binary_event(value, named)
    return None


def _binary_event(value: bytes, headers: Mapping[str, bytes | None]) -> Event:
    def attribute(name: str) -> str | None:
        text = headers.get(_PREFIX + name)
        return None if text is None else _decode(_PREFIX + name, text)

    _check_version(attribute("specversion"), _SPEC_VERSION)
    media_type = headers.get(_CONTENT_TYPE)
    return Event(
        id=_require(attribute("id"), "ce_id"),
        source=_require(attribute("source"), "ce_source"),
        type=_require(attribute("type"), "ce_type"),
        time=attribute("time"),
        data=value,
        content_type=None if media_type is None else _decode(_CONTENT_TYPE, media_type),
    )


def _structured_event(value: bytes, media_type: bytes) -> Event:
    essence = media_type.partition(b";")[0].strip().lower()
    if essence.startswith(_BATCH):
        raise InvalidArticle("value is a batch of events: write each event as a record of its own")
    if essence != _JSON_EVENT:
        raise InvalidArticle("value is an event in a format that is not supported: use application/cloudevents+json")
    event = _parse(value)

    def attribute(name: str) -> str | None:
        text = event.get(name)
        if text is not None and not isinstance(text, str):
            raise InvalidArticle(f"{name} of the event is not a string")
        return text

    _check_version(attribute("specversion"), "specversion of the event")
    data, document = _data(event)
    return Event(
        id=_require(attribute("id"), "id of the event"),
        source=_require(attribute("source"), "source of the event"),
        type=_require(attribute("type"), "type of the event"),
        time=attribute("time"),
        data=data,
        document=document,
        content_type=attribute("datacontenttype"),
    )


def _parse(value: bytes) -> dict[str, object]:
    try:
        event = orjson.loads(json_part(value))
    except orjson.JSONDecodeError as error:
        # orjson's messages are fixed texts; the error itself contains the document, so it is not chained.
        message = f"value is not the JSON of an event: {error.msg} (character {error.pos})"
        raise InvalidArticle(message) from None
    if not isinstance(event, dict):
        raise InvalidArticle("value is not an event: it is not a JSON object")
    return event


def _data(event: Mapping[str, object]) -> tuple[bytes | None, object]:
    """The data of a structured event: either bytes and None, or None and a JSON object."""
    encoded, data = event.get("data_base64"), event.get("data")
    if encoded is None:
        if isinstance(data, dict):
            return None, data
        raise InvalidArticle("data of the event is not a JSON object" if "data" in event else "the event has no data")
    if "data" in event:
        raise InvalidArticle("the event has both data and data_base64")
    try:
        return b64decode(encoded, validate=True), None  # type: ignore[arg-type]  # it refuses anything but text
    except (ValueError, TypeError):
        raise InvalidArticle("data_base64 of the event is not base64") from None


def _check_version(version: str | None, name: str) -> None:
    if not _VERSION_1.fullmatch(_require(version, name)):
        raise InvalidArticle(f"{name} is not 1.0: events of other versions are not read")


def _require(text: str | None, name: str) -> str:
    if not text:
        raise InvalidArticle(f"{name} is missing" if text is None else f"{name} is empty")
    return text


def _decode(name: str, text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise InvalidArticle(f"{name} is not UTF-8") from None


class EventHeaders:
    """Makes the headers by which a record is an event. `source`: a URI reference, the same for all records of a group."""

    def __init__(self, source: str, *, data_schema: str = DATA_SCHEMA) -> None:
        self._shared = (
            ("ce_source", source.encode()),
            ("ce_type", EVENT_TYPE.encode()),
            ("ce_dataschema", data_schema.encode()),
        )

    def of_record(self, headers: Iterable[tuple[str, bytes | None]], article_id: str) -> list[tuple[str, bytes | None]]:
        """The event's headers, given the record's own. They are the same for every attempt at one input record.

        `ce_subject` is the article's id, unless it contains what no attribute may contain, such as control characters.
        """
        record_id = dict(headers)["enricher.record.id"]
        event_headers = [(_SPEC_VERSION, b"1.0"), ("ce_id", record_id), *self._shared]
        if not _FORBIDDEN.search(article_id):
            event_headers.append(("ce_subject", article_id.encode()))
        return event_headers


def default_source(group_id: str) -> str:
    """The source `/enricher/GROUP_ID`; characters that a URI cannot contain are in percent encoding."""
    return f"/enricher/{quote(group_id, safe='')}"
