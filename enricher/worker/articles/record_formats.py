"""Enriched records as bytes in the formats of `output.format`, and back as JSON.

All formats but plain JSON begin with Confluent's prefix, by which consumers find the schema; in Protobuf the index of the
message follows. A format is added by its entry in `FORMATS`. The packages of Avro and Protobuf are those of an extra, so
they are imported when a worker needs them. `record_values` has the fields; nothing here knows topics or sizes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from typing import Any

import orjson

from enricher.distribution import install_command
from enricher.errors import SettingsError
from enricher.worker.articles.envelope import FIRST_MESSAGE, ID_MAGIC, ID_PREFIX_BYTES, MAX_SCHEMA_ID, id_prefix
from enricher.worker.articles.record_values import encode_record, json_of, record_values
from enricher.worker.articles.schemas import Schema
from enricher.worker.contracts import (
    RECORD_MESSAGE,
    SCHEMA_TYPES,
    RecordFormat,
    SchemaType,
    record_descriptors,
    record_schema,
)
from enricher.worker.records import EnrichedRecord

Encode = Callable[[EnrichedRecord], bytes]
"""Turns a record into its payload. Deterministic. Raises InvalidArticle, of stage `publish`, as `encode_record` does."""
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

    def functions(self) -> tuple[Encode, Decode]:
        """Import both functions. Raises SettingsError if the packages for them are missing."""
        try:
            return self.codec()
        except ImportError as error:
            message = (
                f"records in {self.content_type.decode()} need more packages ({error}): {install_command('registry')}"
            )
            raise SettingsError(message) from error


@dataclass(slots=True)
class RecordWriter:
    """Writes records in one format.

    `schema`: the schema of records, None for plain JSON. With a schema, `begin_with` is called before the first `write`.
    """

    format: WrittenFormat
    schema: Schema | None
    _encode: Encode
    _prefix: bytes | None

    @property
    def content_type(self) -> bytes:
        """The media type of what follows the prefix."""
        return self.format.content_type

    @property
    def ready(self) -> bool:
        """Whether records can be written."""
        return self._prefix is not None

    def begin_with(self, schema_id: int) -> None:
        """Write this id of the schema from now on. Raises SettingsError if the prefix has no room for it."""
        assert self.schema is not None, "plain JSON has no schema id"
        if not 0 <= schema_id <= MAX_SCHEMA_ID:
            raise SettingsError(f"schema id {schema_id} does not fit Confluent's 4-byte prefix (0 to {MAX_SCHEMA_ID})")
        self._prefix = id_prefix(schema_id) + self.format.message

    def write(self, record: EnrichedRecord) -> bytes:
        """The value of a record. Deterministic. Raises InvalidArticle, of stage `publish`, as `encode_record` does."""
        assert self._prefix is not None, "the schema id is found before the first record"
        value = self._encode(record)
        return self._prefix + value if self._prefix else value

    @property
    def writes_text(self) -> bool:
        """Whether numbers are written as text."""
        return self.schema is None or self.schema.type == "JSON"


def record_writer(output_format: RecordFormat) -> RecordWriter:
    """The writer of a format. Raises SettingsError if the packages that it needs are not installed."""
    chosen = FORMATS[output_format]
    encode, _ = chosen.functions()
    if chosen.schema_type is None:
        return RecordWriter(chosen, None, encode, b"")
    return RecordWriter(chosen, Schema(chosen.schema_type, record_schema(chosen.schema_type)), encode, None)


def record_as_json(value: bytes, content_type: bytes | None) -> bytes:
    """The JSON of a record's value, for people and tests. `content_type`: the header; plain JSON may lack it.

    Raises ValueError if the value is not a record in that format, and SettingsError if the packages for it are missing.
    """
    if value[:1] != ID_MAGIC:
        return value
    by_type = (each for each in FORMATS.values() if each.content_type == content_type)
    chosen = next(by_type, FORMATS["json"])
    _, decode = chosen.functions()
    payload = value[ID_PREFIX_BYTES:]
    if not payload.startswith(chosen.message):
        raise ValueError("not the first message of the schema")
    return decode(payload[len(chosen.message) :])


def _json() -> tuple[Encode, Decode]:
    return encode_record, bytes


@cache
def _avro() -> tuple[Encode, Decode]:
    """The functions for Avro, by `schemas/enriched-record.v1.avsc`."""
    from fastavro import parse_schema, schemaless_reader, schemaless_writer  # noqa: PLC0415  of an extra

    schema = parse_schema(orjson.loads(record_schema("AVRO")))

    def encode(record: EnrichedRecord) -> bytes:
        buffer = BytesIO()
        # With this notation a tuple names the branch of a union. None of our values is a tuple.
        schemaless_writer(buffer, schema, record_values(record), disable_tuple_notation=True)
        return buffer.getvalue()

    def decode(payload: bytes) -> bytes:
        buffer = BytesIO(payload)
        try:
            values: Any = schemaless_reader(buffer, schema, None)
        except (
            Exception
        ) as error:  # fastavro raises whatever its C code meets: EOFError, IndexError, OverflowError, ...
            raise ValueError("not a record in Avro") from error
        if buffer.tell() != len(payload) or not isinstance(values, dict):
            raise ValueError("not a record in Avro")
        return json_of(values)

    return encode, decode


@cache
def _protobuf() -> tuple[Encode, Decode]:
    """The functions for Protobuf, by `schemas/enriched-record.v1.proto`, in a pool where no other message has its name.

    Deterministic for one version of protobuf. Fields that the schema does not have are left out when a record is read.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorSet  # noqa: PLC0415  of an extra
    from google.protobuf.descriptor_pool import DescriptorPool  # noqa: PLC0415
    from google.protobuf.json_format import MessageToDict  # noqa: PLC0415
    from google.protobuf.message import DecodeError  # noqa: PLC0415
    from google.protobuf.message_factory import GetMessageClass  # noqa: PLC0415

    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(record_descriptors()).file:
        pool.Add(file)
    message_class: Any = GetMessageClass(pool.FindMessageTypeByName(RECORD_MESSAGE))

    def encode(record: EnrichedRecord) -> bytes:
        encoded: bytes = message_class(**record_values(record)).SerializeToString(deterministic=True)
        return encoded

    def decode(payload: bytes) -> bytes:
        try:
            message = message_class.FromString(payload)
        except DecodeError as error:
            raise ValueError("not a record in Protobuf") from error
        return json_of(
            MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
        )

    return encode, decode


_JSON = b"application/json"
FORMATS: dict[RecordFormat, WrittenFormat] = {
    "json": WrittenFormat(_JSON, None, _json),
    "avro": WrittenFormat(b"application/avro", SCHEMA_TYPES["avro"], _avro),
    "protobuf": WrittenFormat(b"application/protobuf", SCHEMA_TYPES["protobuf"], _protobuf, FIRST_MESSAGE),
    "json-schema": WrittenFormat(_JSON, SCHEMA_TYPES["json-schema"], _json),
}
"""All formats, as `output.format` names them."""
