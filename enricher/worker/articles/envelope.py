"""Reads the frame that names the schema of a value.

Frames are those of Confluent, as a prefix or in a header:

| where | bytes |
|---|---|
| value | `00`, schema id (4 bytes, big-endian), payload |
| value | `01`, GUID (16 bytes), payload |
| header `__value_schema_id` | either prefix without the payload, which is the value |

The message indexes of Protobuf follow Confluent's id or GUID, in the header too. If there is such a header, the value is not
looked at, as in Confluent's deserializers. A value that begins as JSON does has no frame. Nothing else is guessed.

An input that is an event (CloudEvents 1.0) has no part here: the mapping finds fields in documents and headers.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

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
