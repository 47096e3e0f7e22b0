"""The formats of articles, and the function that reads each. JSON is read here; Avro and Protobuf have their own modules.

JSON documents that name a JSON Schema are not validated, and the schema's text is not even parsed: the serializer has
validated them before publishing, a schema never changes how bytes are read, and a validator would run the regular
expressions of strangers, perhaps for ever. The fields of an article are checked afterwards, as for any JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import orjson

from enricher.distribution import install_command
from enricher.errors import InvalidArticle, SettingsError
from enricher.worker.articles.envelope import BYTE_ORDER_MARK, ID_MAGIC, json_part
from enricher.worker.articles.formats.avro import compile_avro
from enricher.worker.articles.formats.protobuf import compile_protobuf
from enricher.worker.articles.schemas import Compile, Decoder, Document, Schema, unusable
from enricher.worker.contracts import PlainFormat, SchemaType

NOT_AN_OBJECT = "value is not a JSON object"

_SCHEMA_NOT_JSON = "value has a schema id but is not JSON: articles.format=registry reads Avro and Protobuf"
_AVRO_FILE = b"Obj\x01"

ReadDocument = Callable[[bytes, int], dict[str, Any]]
"""Turns a value of at most so many bytes into its document, with the types of JSON. Raises InvalidArticle."""


@dataclass(frozen=True, slots=True)
class InputFormat:
    """A format of articles whose values name a schema."""

    compile: Compile
    libraries: tuple[str, ...] = ()
    """The modules that `compile` imports for its first schema."""


def compile_schema(schema: Schema) -> Decoder:
    """The decoder of a schema's payloads. Raises InvalidArticle if the schema cannot be used.

    Blocks: Protobuf takes half a second, hostile text up to half a minute, so the loop's thread must not call it.
    """
    form = SCHEMA_FORMATS.get(schema.type)
    if form is None:
        *most, last = SCHEMA_FORMATS
        raise unusable(str(schema.type), f"only {', '.join(most)} and {last} are known")
    return form.compile(schema)


def require_formats() -> None:
    """Raises SettingsError if a library of the extra is missing; imports none of them."""
    missing = [name for form in SCHEMA_FORMATS.values() for name in form.libraries if not _is_installed(name)]
    if missing:
        raise SettingsError(
            f"schema registries need {', '.join(missing)}: install them with {install_command('registry')}"
        )


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False


def read_document(value: bytes, max_value_bytes: int) -> dict[str, Any]:
    """The JSON object in a value. Raises InvalidArticle.

    A value above `max_value_bytes` is not parsed: nested arrays take 0.15 s and 50 MB of memory per megabyte. A schema id
    prefix of Confluent and a UTF-8 byte order mark (RFC 8259, section 8.1) are skipped. The last of duplicate keys counts.
    NaN, infinite numbers, lone surrogates and more than 1024 levels are not JSON.
    """
    if len(value) > max_value_bytes:
        raise too_large(value, max_value_bytes)
    text = json_part(value)
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        reason = _SCHEMA_NOT_JSON if value[:1] == ID_MAGIC else _not_json(text, error)
    else:
        if type(document) is dict:
            return document
        reason = NOT_AN_OBJECT
    raise InvalidArticle(reason)


def too_large(value: bytes, max_value_bytes: int) -> InvalidArticle:
    """The error for a value that is too large to be parsed."""
    return InvalidArticle(f"value has {len(value)} bytes, at most {max_value_bytes} are allowed")


def _not_json(value: bytes, error: orjson.JSONDecodeError) -> str:
    """Why the value is not JSON, as far as its bytes show; the parser's message for other encodings is misleading."""
    if value.startswith(_AVRO_FILE):
        return "value is not JSON but an Avro file"
    try:
        value.decode()
    except UnicodeDecodeError as undecodable:
        at = f"byte {undecodable.start}"
        return f"value is not UTF-8, as JSON is ({at}): another encoding, such as Latin-1, or a binary format, such as Avro"
    # orjson's messages are fixed texts; the error itself contains the document, so it is not chained.
    return f"value is not valid JSON: {error.msg} (character {error.pos})"


def read_json(payload: bytes) -> Document:
    """The JSON object in a payload. The parser's limit is 1024 levels; trailing bytes are refused."""
    try:
        document = orjson.loads(payload.removeprefix(BYTE_ORDER_MARK))
    except orjson.JSONDecodeError as error:
        # The error contains the document, so it is not chained.
        reason = f"value names a JSON schema but is not valid JSON: {error.msg} (character {error.pos})"
    else:
        if type(document) is dict:
            return document
        reason = NOT_AN_OBJECT
    raise InvalidArticle(reason)


SCHEMA_FORMATS: dict[SchemaType, InputFormat] = {
    "AVRO": InputFormat(compile_avro, ("fastavro",)),
    "PROTOBUF": InputFormat(compile_protobuf, ("google.protobuf", "grpc_tools")),
    "JSON": InputFormat(lambda _schema: read_json),
}
"""The formats of values that name a schema, by its type."""

PLAIN_FORMATS: dict[PlainFormat, ReadDocument] = {"json": read_document}
"""The formats of values that name no schema, as `articles.format` names them."""
