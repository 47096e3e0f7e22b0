"""Writes lines of JSON in the formats of a schema registry: for a first try, and for tests of a pipeline.

Registers the schema, and prefixes each value with its id, as Confluent's serializers do.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import orjson

from enricher.codec.formats import require_formats
from enricher.codec.formats.protobuf_files import loaded
from enricher.codec.schemas import Schema, SchemaRef
from enricher.contracts import SCHEMA_TYPES
from enricher.errors import BrokerError, FatalError, InvalidArticle, SettingsError
from enricher.registry.errors import RegistryError, UnknownToRegistry

if TYPE_CHECKING:
    from enricher.registry.client import RegistryClient

Format = Literal["avro", "protobuf", "json-schema"]
Encode = Callable[[bytes], bytes]
"""A line of JSON to the value to publish. Raises FatalError if it does not fit the schema."""

_FIRST_MESSAGE = b"\0"
"""Message indexes of the first message of a Protobuf file."""


def registered_encoder(output_format: Format, file: Path, client: RegistryClient, subject: str) -> Encode:
    """Register the schema in `file` under `subject`, and return what writes by it.

    Raises SettingsError, BrokerError if the registry refuses it or does not answer, FatalError if it cannot be used.
    """
    require_formats()
    schema = Schema(SCHEMA_TYPES[output_format], _text(file))
    try:
        writes = _WRITERS[output_format](schema)
    except (InvalidArticle, OSError) as error:
        raise FatalError(f"{file}: {error}") from error
    try:
        schema_id = _registered(schema, client, subject)
    except RegistryError as error:
        raise BrokerError(f"{file} was not registered under '{subject}': {error}. Nothing was published") from error
    prefix = b"\0" + schema_id.to_bytes(4)

    def encode(line: bytes) -> bytes:
        try:
            return prefix + writes(line)
        except Exception as error:
            # What the libraries raise is not listed anywhere; their messages tell which field is wrong.
            raise FatalError(f"a line does not fit the schema in {file}: {type(error).__name__}: {error}") from error

    return encode


def _registered(schema: Schema, client: RegistryClient, subject: str) -> int:
    """The schema's id. Refuses what readers would take for another format: some registries give ids by the text alone."""
    newest = client.latest(subject)
    if newest and newest.type != schema.type:
        message = (
            f"the subject '{subject}' has schemas of type {newest.type}, not {schema.type}: use another input topic"
        )
        raise SettingsError(message)
    schema_id = client.register(subject, schema)
    try:
        found = client.schema(SchemaRef("id", str(schema_id)))
    except UnknownToRegistry:  # a follower that lags behind
        return schema_id
    if found.type != schema.type:
        message = f"under its id {schema_id} the registry has a schema of type {found.type}. Nothing was published"
        raise BrokerError(message)
    return schema_id


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise SettingsError(f"--schema: {file} cannot be read: {reason}") from None


def _avro(schema: Schema) -> Encode:
    import fastavro  # noqa: PLC0415  of the extra `registry`

    try:
        parsed = fastavro.parse_schema(orjson.loads(schema.text))
    except (ValueError, KeyError, fastavro.schema.SchemaParseException) as error:
        raise InvalidArticle(f"this is no Avro schema: {type(error).__name__}: {error}") from error

    def write(line: bytes) -> bytes:
        written = io.BytesIO()
        fastavro.schemaless_writer(written, parsed, orjson.loads(line))
        return written.getvalue()

    return write


def _protobuf(schema: Schema) -> Encode:
    from google.protobuf.json_format import ParseDict  # noqa: PLC0415  of the extra `registry`
    from google.protobuf.message_factory import GetMessageClass  # noqa: PLC0415

    pool, file, _ = loaded(schema)
    if not file.message_type:
        raise InvalidArticle("this Protobuf file has no message")
    full_name = ".".join(filter(None, (file.package, file.message_type[0].name)))
    message_class: Any = GetMessageClass(pool.FindMessageTypeByName(full_name))

    def write(line: bytes) -> bytes:
        message = ParseDict(orjson.loads(line), message_class(), ignore_unknown_fields=True)
        written: bytes = message.SerializeToString()
        return _FIRST_MESSAGE + written

    return write


def _json(schema: Schema) -> Encode:
    orjson.loads(schema.text)

    def write(line: bytes) -> bytes:
        orjson.loads(line)
        return line

    return write


_WRITERS: dict[Format, Callable[[Schema], Encode]] = {"avro": _avro, "protobuf": _protobuf, "json-schema": _json}
