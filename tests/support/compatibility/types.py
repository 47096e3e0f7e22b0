"""Which type a schema has, by the name of its file or by what is in it."""

from __future__ import annotations

from typing import Any

import orjson

from enricher.worker.contracts import SchemaType
from support.compatibility.findings import SchemaUnusable

_NAMED = ("record", "error", "enum", "fixed")
_SUFFIXES: dict[str, SchemaType] = {".avsc": "AVRO", ".proto": "PROTOBUF"}


def type_of(name: str, text: str) -> SchemaType:
    """The type of the schema in a file `name`. A `.json` or any other file is judged by its content.

    Raises SchemaUnusable if it is none of them.
    """
    for suffix, schema_type in _SUFFIXES.items():
        if name.lower().endswith(suffix):
            return schema_type
    try:
        value: Any = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        if not name.lower().endswith(".json") and ("message " in text or "syntax" in text):
            return "PROTOBUF"
        raise SchemaUnusable(f"it is not JSON ({error}), and not named .proto or .avsc") from None
    if isinstance(value, list | str) or (isinstance(value, dict) and _looks_like_avro(value)):
        return "AVRO"
    return "JSON"


def _looks_like_avro(value: dict[str, Any]) -> bool:
    """Avro's named types have a name, and its maps have values; no JSON Schema says so in these words."""
    kind = value.get("type")
    return (kind in _NAMED and isinstance(value.get("name"), str)) or (kind == "map" and "values" in value)
