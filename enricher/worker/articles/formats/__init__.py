"""Decoders of Avro, Protobuf and JSON documents, made from their schemas.

Payloads and schemas are written by others. Each hostile one ends in one InvalidArticle, within these bounds:

| | Avro | Protobuf | JSON |
|---|---|---|---|
| length of a payload | `articles.max_value_bytes` | the same | the same |
| values of a document | `MAX_VALUES`, fewer for a short payload | the same | about one for every two bytes |
| names of fields and symbols in it | 32 bytes for each value, on average | the same | are part of the payload |
| unknown fields | there are none | with known ones `MAX_VALUES`, where they have to be counted | part of the payload |
| levels of a document | 100 of types by name | 100 | 1024 |
| memory before values are counted | none is reserved by a length that is only claimed | `MAX_PARSED_BYTES` | none |
| items without bytes | are counted before they are made | take two bytes each | there are none |
| bytes after the document | refused | cannot be told from fields | refused |
| text that is not UTF-8 | refused | refused | refused |
| decimals | 64 bytes | 64 bytes | as a double |
| schema: length | `registry.max_schema_bytes` | the same | not parsed |
| schema: levels, size | 100 levels | 100 levels, 50,000 declarations, 5,000 messages | not parsed |
| schema: names | 256 characters of a type's name or namespace | 500 characters of a full name | not parsed |
| schema: memory of its decoder | `Schema.decoder_bytes` | the same | nothing |
| schema: time and memory of its compiler | it only parses JSON | 30 s, 1 GiB, in a process of its own | not parsed |
| names that are paths | are only names | refused, except relative paths to .proto files | not parsed |

Bytes that follow are refused, which Confluent's Avro deserializers do not do: they mean that another schema wrote the value.
A top level that is no record, message or object is refused. Documents contain the types of JSON: bytes are base64, dates and
times RFC 3339, decimals and UUIDs text, enums their names. Avro's unions are their plain values.

The libraries (extra `registry`) are imported when the first schema of their format is compiled.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec

from enricher.distribution import install_command
from enricher.errors import SettingsError
from enricher.worker.articles.formats.avro import compile_avro
from enricher.worker.articles.formats.decoder_limits import unusable
from enricher.worker.articles.formats.json_schema import compile_json
from enricher.worker.articles.formats.protobuf import compile_protobuf
from enricher.worker.articles.json_articles import ReadDocument, read_document
from enricher.worker.articles.schemas import Compile, Decoder, Schema
from enricher.worker.contracts import PlainFormat, SchemaType

__all__ = ["PLAIN_FORMATS", "SCHEMA_FORMATS", "InputFormat", "compile_schema", "require_formats"]


@dataclass(frozen=True, slots=True)
class InputFormat:
    """A format of articles whose values name a schema."""

    compile: Compile
    libraries: tuple[str, ...] = ()
    """The modules that it imports for its first schema."""


SCHEMA_FORMATS: dict[SchemaType, InputFormat] = {
    "AVRO": InputFormat(compile_avro, ("fastavro",)),
    "PROTOBUF": InputFormat(compile_protobuf, ("google.protobuf", "grpc_tools")),
    "JSON": InputFormat(compile_json),
}
"""The formats of values that name a schema, by its type. A format is added by its entry."""

PLAIN_FORMATS: dict[PlainFormat, ReadDocument] = {"json": read_document}
"""The formats of values that name none, as `articles.format` names them. A format is added by its entry."""


def compile_schema(schema: Schema, *, glue: bool = False) -> Decoder:
    """The decoder of a schema's payloads. Raises InvalidArticle if the schema cannot be used.

    Blocks: Protobuf takes half a second, hostile text up to half a minute, so the loop's thread must not call it. `glue`:
    payloads come from AWS Glue's frames, which name the message of a Protobuf schema differently.
    """
    form = SCHEMA_FORMATS.get(schema.type)
    if form is None:
        *most, last = SCHEMA_FORMATS
        raise unusable(str(schema.type), f"only {', '.join(most)} and {last} are known")
    return form.compile(schema, glue=glue)


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
