"""Reduces an Avro schema to what is needed to read: no defaults, aliases, documentation or order.

Those may be wrong or enormous without any effect on the bytes, so nobody looks at them.
"""

from __future__ import annotations

from typing import Any

from enricher.errors import InvalidArticle
from enricher.worker.articles.formats.limits import MAX_LEVELS, unusable

MAX_NAME_CHARS = 256
"""Bounds a type's name, and a namespace, which becomes part of every name within it."""

AvroSchema = Any
"""A schema as parsed JSON: a name, a list (union) or a dictionary."""

PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_NAMED = ("name", "namespace")
_LOGICAL = ("logicalType", "scale")


def essential(schema: AvroSchema, level: int = 0) -> AvroSchema:
    """The schema without everything that does not change how bytes are read. Raises InvalidArticle."""
    if level > MAX_LEVELS:
        raise _broken(f"more than {MAX_LEVELS} levels")
    if isinstance(schema, str):
        return schema
    if isinstance(schema, list):
        return [essential(branch, level + 1) for branch in schema]
    if not isinstance(schema, dict) or "type" not in schema:
        raise _broken("a type is neither a name nor a list nor an object with `type`")
    kind = schema["type"]
    return _object(kind, schema, level + 1) if isinstance(kind, str) else essential(kind, level + 1)


def _object(kind: str, schema: dict[str, Any], level: int) -> AvroSchema:
    named, logical = ({key: schema[key] for key in keys if key in schema} for keys in (_NAMED, _LOGICAL))
    if any(isinstance(name, str) and len(name) > MAX_NAME_CHARS for name in named.values()):
        raise _broken(f"a name or namespace has more than {MAX_NAME_CHARS} characters")
    match kind:
        case "record" | "error":
            return {"type": "record", **named, "fields": [_field(each, level) for each in _list(schema, "fields")]}
        case "enum":
            return {"type": kind, **named, "symbols": _list(schema, "symbols")}
        case "fixed":
            return {"type": kind, **named, **logical, "size": _size(schema)}
        case "array":
            return {"type": kind, "items": essential(schema.get("items"), level)}
        case "map":
            return {"type": kind, "values": essential(schema.get("values"), level)}
    return {"type": kind, **logical} if kind in PRIMITIVES and logical else kind


def _field(field: object, level: int) -> dict[str, Any]:
    if not isinstance(field, dict) or not isinstance(field.get("name"), str):
        raise _broken("a field has no name")
    return {"name": field["name"], "type": essential(field.get("type"), level)}


def _list(schema: dict[str, Any], name: str) -> list[Any]:
    if not isinstance(found := schema.get(name), list):
        raise _broken(f"`{name}` is not a list")
    return found


def _size(schema: dict[str, Any]) -> int:
    size = schema.get("size")
    if type(size) is not int or size < 0:
        raise _broken("the size of a fixed type is not a number from 0 on")
    return size


def _broken(reason: str) -> InvalidArticle:
    return unusable("Avro", reason)
