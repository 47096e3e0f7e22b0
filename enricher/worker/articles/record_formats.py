"""The formats of written records: their media types, their schemas, and the functions that write and read them.

A format is added by its entry in `FORMATS`. The functions are imported when a worker needs them, because some need the
packages of an extra.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from enricher.distribution import install_command
from enricher.errors import SettingsError
from enricher.worker.articles.enriched import encode_record
from enricher.worker.articles.formats.record_values import json_of
from enricher.worker.articles.framing import FIRST_MESSAGE, ID_MAGIC, ID_PREFIX_BYTES
from enricher.worker.contracts import SCHEMA_TYPES, RecordFormat, SchemaType
from enricher.worker.records import EnrichedRecord

Encode = Callable[[EnrichedRecord], bytes]
"""Turns a record into its payload. Raises InvalidArticle, of stage `publish`, as `encode_record` does."""
Decode = Callable[[bytes], bytes]
"""Turns a payload into the record as JSON. Raises ValueError if it is not a record."""


@dataclass(frozen=True, slots=True)
class WrittenFormat:
    """A format of records. A payload with a schema stands behind Confluent's prefix, and behind `message`, if any."""

    content_type: bytes
    """The media type of the payload, as in the examples of CloudEvents. None of them is registered for a prefix."""
    schema_type: SchemaType | None
    """The type of its schema, if it has one."""
    codec: Callable[[], tuple[Encode, Decode]]
    """Imports the functions that write and read. Raises ImportError."""
    message: bytes = b""
    """Names the message, where a schema has several."""

    def decode(self, payload: bytes) -> bytes:
        """The record as JSON. Raises ValueError, or SettingsError if the packages for it are missing."""
        _, read = self.functions()
        if not payload.startswith(self.message):
            raise ValueError("not the first message of the schema")
        return read(payload[len(self.message) :])

    def functions(self) -> tuple[Encode, Decode]:
        """Import both functions. Raises SettingsError if the packages for them are missing."""
        try:
            return self.codec()
        except ImportError as error:
            message = (
                f"records in {self.content_type.decode()} need more packages ({error}): {install_command('registry')}"
            )
            raise SettingsError(message) from error


def _json() -> tuple[Encode, Decode]:
    return encode_record, bytes


def _avro() -> tuple[Encode, Decode]:
    from enricher.worker.articles.formats.avro_records import decode_avro, encode_avro  # noqa: PLC0415  of an extra

    return encode_avro, lambda payload: json_of(decode_avro(payload))


def _protobuf() -> tuple[Encode, Decode]:
    from enricher.worker.articles.formats.protobuf_records import decode_protobuf, encode_protobuf  # noqa: PLC0415  of it

    return encode_protobuf, lambda payload: json_of(decode_protobuf(payload))


_JSON = b"application/json"
FORMATS: dict[RecordFormat, WrittenFormat] = {
    "json": WrittenFormat(_JSON, None, _json),
    "avro": WrittenFormat(b"application/avro", SCHEMA_TYPES["avro"], _avro),
    "protobuf": WrittenFormat(b"application/protobuf", SCHEMA_TYPES["protobuf"], _protobuf, FIRST_MESSAGE),
    "json-schema": WrittenFormat(_JSON, SCHEMA_TYPES["json-schema"], _json),
}
"""All formats, as `output.format` names them."""


def record_as_json(value: bytes, content_type: bytes | None) -> bytes:
    """The JSON of a record's value, for people and tests. `content_type`: the header; plain JSON may lack it.

    Raises ValueError if the value is not a record in that format, and SettingsError if the packages for it are missing.
    """
    if value[:1] != ID_MAGIC:
        return value
    by_type = (each for each in FORMATS.values() if each.content_type == content_type)
    return next(by_type, FORMATS["json"]).decode(value[ID_PREFIX_BYTES:])
