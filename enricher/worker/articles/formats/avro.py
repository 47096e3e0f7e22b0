"""Reads Avro. fastavro parses and checks schemas; our own functions read the payloads (`avro_readers`).

fastavro's reader cannot be bounded: an array of 2^63 nulls has ten bytes and takes all memory, its C code does not check its
stack and crashes at some 2,000 levels, and a decimal of 4 MB takes minutes. Refusing such types would not help: it counts no
values, so 4 MB of records in records take 4 GB and 28 s, and an array of records with one optional field, as honest schemas
have, takes 0.8 GB. For an article of strings it also takes twice as long; for one of nested records it is faster.
"""

from __future__ import annotations

import re
import struct
from typing import Any

import orjson

from enricher.errors import InvalidArticle
from enricher.worker.articles.formats.avro_readers import AvroSchema, Reader, Readers
from enricher.worker.articles.schemas import MAX_LEVELS, Budget, Decoder, Document, Schema, unreadable, unusable

MAX_NAME_CHARS = 256
"""The most characters of a type's name, and of a namespace, which becomes part of every name within it."""

_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED = ("name", "namespace")
_LOGICAL = ("logicalType", "scale")
_NAME = re.compile(r"\s*[A-Za-z_][A-Za-z0-9_.]*\s*")


def compile_avro(schema: Schema) -> Decoder:
    """The decoder of a schema whose top level is a record. Raises InvalidArticle if the schema cannot be used."""
    from fastavro import parse_schema  # noqa: PLC0415  only for those who read Avro

    named: dict[str, Any] = {}
    parsed: AvroSchema = None
    try:
        for text in [*(reference.text for reference in schema.references), schema.text]:
            parsed = parse_schema(_reduce(_parse_json(text)), named)
    except InvalidArticle:
        raise
    except Exception as error:  # noqa: BLE001  fastavro documents none, and schemas of strangers cause many
        raise unusable("Avro", error if str(error) else type(error).__name__) from None
    if isinstance(parsed, str):
        parsed = named.get(parsed)
    if not isinstance(parsed, dict) or parsed["type"] != "record":
        raise unusable("Avro", "its top level is not a record")
    return _decoder(Readers(named).reader(parsed))


def _parse_json(text: str) -> AvroSchema:
    """The schema's JSON; a bare name is one too, as registries have it."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if _NAME.fullmatch(text):
            return text.strip()
        raise unusable("Avro", f"it is not JSON: {error.msg} (character {error.pos})") from None


def _decoder(read: Reader) -> Decoder:
    def decode(payload: bytes) -> Document:
        try:
            document, end = read(payload, 0, Budget(len(payload)))
        except (IndexError, struct.error):
            raise unreadable("Avro", "it ends too early") from None
        except UnicodeDecodeError:
            raise unreadable("Avro", "a string is not UTF-8") from None
        except RecursionError:
            raise unreadable("Avro", "it is nested too deeply") from None
        if end != len(payload):
            raise unreadable("Avro", f"{len(payload) - end} bytes follow it")
        return document

    return decode


def _reduce(schema: AvroSchema, level: int = 0) -> AvroSchema:
    """The schema without defaults, aliases, documentation and order. Raises InvalidArticle.

    These parts may be wrong or enormous, and have no effect on how bytes are read.
    """
    if level > MAX_LEVELS:
        raise _bad_schema(f"more than {MAX_LEVELS} levels")
    if isinstance(schema, str):
        return schema
    if isinstance(schema, list):
        return [_reduce(branch, level + 1) for branch in schema]
    if not isinstance(schema, dict) or "type" not in schema:
        raise _bad_schema("a type is neither a name nor a list nor an object with `type`")
    kind = schema["type"]
    return _reduce_object(kind, schema, level + 1) if isinstance(kind, str) else _reduce(kind, level + 1)


def _reduce_object(kind: str, schema: dict[str, Any], level: int) -> AvroSchema:
    named, logical = ({key: schema[key] for key in keys if key in schema} for keys in (_NAMED, _LOGICAL))
    if any(isinstance(name, str) and len(name) > MAX_NAME_CHARS for name in named.values()):
        raise _bad_schema(f"a name or namespace has more than {MAX_NAME_CHARS} characters")
    match kind:
        case "record" | "error":
            return {
                "type": "record",
                **named,
                "fields": [_reduce_field(each, level) for each in _require_list(schema, "fields")],
            }
        case "enum":
            return {"type": kind, **named, "symbols": _require_list(schema, "symbols")}
        case "fixed":
            return {"type": kind, **named, **logical, "size": _require_size(schema)}
        case "array":
            return {"type": kind, "items": _reduce(schema.get("items"), level)}
        case "map":
            return {"type": kind, "values": _reduce(schema.get("values"), level)}
    return {"type": kind, **logical} if kind in _PRIMITIVES and logical else kind


def _reduce_field(field: object, level: int) -> dict[str, Any]:
    if not isinstance(field, dict) or not isinstance(field.get("name"), str):
        raise _bad_schema("a field has no name")
    return {"name": field["name"], "type": _reduce(field.get("type"), level)}


def _require_list(schema: dict[str, Any], name: str) -> list[Any]:
    if not isinstance(found := schema.get(name), list):
        raise _bad_schema(f"`{name}` is not a list")
    return found


def _require_size(schema: dict[str, Any]) -> int:
    size = schema.get("size")
    if type(size) is not int or size < 0:
        raise _bad_schema("the size of a fixed type is not a number from 0 on")
    return size


def _bad_schema(reason: str) -> InvalidArticle:
    return unusable("Avro", reason)
