"""Reads and writes what names the schema of a value: Confluent's prefix and header, AWS Glue's prefix.

| where | bytes |
|---|---|
| value, Confluent | `00`, schema id (4 bytes, big-endian), payload |
| value, Confluent | `01`, GUID (16 bytes), payload |
| header `__value_schema_id`, Confluent | either of these without the payload, which is the value |
| value, AWS Glue | `03`, compression (`00` none, `05` zlib), UUID (16 bytes), payload |

The message indexes of Protobuf follow Confluent's id or GUID, in the header too. If there is such a header, the value is not
looked at, as in Confluent's deserializers. A value that begins as JSON does has no frame. Nothing else is guessed.
"""

from __future__ import annotations

import zlib
from functools import lru_cache
from typing import NamedTuple
from uuid import UUID

from enricher.errors import InvalidArticle
from enricher.worker.articles.schemas import SchemaRef
from enricher.worker.records import Headers

HEADER = "__value_schema_id"
"""Confluent's header for the schema of a value. Of several, the first counts."""

ID_MAGIC = b"\0"
"""The first byte of Confluent's prefix with a schema id. JSON never begins with it."""

ID_PREFIX_BYTES = 5
"""Bytes of that prefix."""

FIRST_MESSAGE = b"\0"
"""Message indexes behind the prefix, for Protobuf: the short form of [0], which every serialiser writes."""

MAX_SCHEMA_ID = 2**31 - 1
"""The id has four bytes with a sign."""

_GLUE = b"\3"
_GUID_END = 17
_GLUE_END = 18
_GLUE_PLAIN, _GLUE_ZLIB = 0, 5
_JSON_BEGINS = b"{[ \t\r\n\xef"
"""The last byte begins a byte order mark in UTF-8."""


class Frame(NamedTuple):
    """A framed value. The payload of Protobuf begins with its message indexes, wherever they were."""

    reference: SchemaRef
    payload: bytes


def read_frame(value: bytes, headers: Headers, *, max_payload_bytes: int) -> Frame | None:
    """The frame of a value; None if it has none.

    Raises InvalidArticle if the frame is damaged or its payload unpacks to more than `max_payload_bytes`.
    """
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
    if magic == _GLUE:
        return _glue_frame(value, max_payload_bytes)
    return None if magic in _JSON_BEGINS else _confluent_frame(value, "value")


def id_prefix(schema_id: int) -> bytes:
    """Confluent's prefix for a value. The id is from 0 to `MAX_SCHEMA_ID`."""
    return ID_MAGIC + schema_id.to_bytes(ID_PREFIX_BYTES - 1, "big", signed=True)


def _confluent_frame(framed: bytes, where: str) -> Frame:
    """The frame in a value or header that Confluent's serializer wrote."""
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
    glue = " or 03 (AWS Glue's prefix), or JSON" if where == "value" else ""
    raise InvalidArticle(f"{where} {begins}: expected 00 (Confluent's schema id), 01 (Confluent's GUID){glue}")


@lru_cache(maxsize=1024)
def _by_id(number: bytes) -> SchemaRef:
    schema_id = int.from_bytes(number, "big", signed=True)
    if schema_id < 0:  # registries answer such a request as if it were for another path
        raise InvalidArticle(f"the schema id is {schema_id}, which no registry gives: is this Confluent's prefix?")
    return SchemaRef("id", str(schema_id))


def _glue_frame(value: bytes, max_payload_bytes: int) -> Frame:
    if len(value) < _GLUE_END:
        raise _too_short(
            value, _GLUE_END, "value begins with byte 03: AWS Glue's prefix, compression and a schema UUID"
        )
    reference = SchemaRef("glue", str(UUID(bytes=value[2:_GLUE_END])))
    if value[1] == _GLUE_PLAIN:
        return Frame(reference, value[_GLUE_END:])
    if value[1] == _GLUE_ZLIB:
        return Frame(reference, _unpack(value[_GLUE_END:], max_payload_bytes))
    raise InvalidArticle(f"AWS Glue's compression is {value[1]:02x}: expected 00 (none) or 05 (zlib)")


def _unpack(packed: bytes, max_payload_bytes: int) -> bytes:
    """Unpack with zlib, into no more memory than `max_payload_bytes`."""
    stream = zlib.decompressobj()
    try:
        payload = stream.decompress(packed, max_payload_bytes + 1)
    except zlib.error:
        raise InvalidArticle("the payload of AWS Glue's frame is not zlib") from None
    if len(payload) > max_payload_bytes:
        raise InvalidArticle(f"the payload of AWS Glue's frame unpacks to more than {max_payload_bytes} bytes")
    if not stream.eof:
        raise InvalidArticle("the payload of AWS Glue's frame ends too early for zlib")
    if stream.unused_data:
        raise InvalidArticle(f"{len(stream.unused_data)} bytes follow the payload of AWS Glue's frame")
    return payload


def _too_short(framed: bytes, expected_bytes: int, what: str) -> InvalidArticle:
    return InvalidArticle(f"{what}; expected at least {expected_bytes} bytes, found {len(framed)}")
