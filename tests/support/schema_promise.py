"""The promise of our formats from release to release: optional fields may come, and all else stays as it is.

Far stricter than a registry, and far simpler: of two schemas, whatever is not an addition that readers ignore is named. A
change that is decided on all the same is listed in the test, with its reason.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from google.protobuf.json_format import MessageToDict

from enricher.worker.articles.formats.protobuf_schema import load_files
from enricher.worker.articles.schemas import Schema
from enricher.worker.contracts import SchemaType

_WORDS = {"description", "title", "examples", "$comment", "$schema", "doc"}
"""Keywords that say nothing about a value, unless a property has such a name."""
_GROWING = {
    "properties",
    "fields",
    "field",
    "message_type",
    "nested_type",
    "enum_type",
    "value",
    "reserved_name",
    "reserved_range",
}
"""Lists of a schema, by name, that may get more entries."""
_ARTICLE = "urn:enricher:schema:article:"


def type_of(file_name: str) -> SchemaType:
    """The type of a schema in `schemas/`."""
    types: dict[str, SchemaType] = {"avsc": "AVRO", "proto": "PROTOBUF", "json": "JSON"}
    return types[file_name.rpartition(".")[2]]


def broken_promises(schema_type: SchemaType, old: str, new: str) -> dict[str, str]:
    """The places at which the new schema is not as promised, and how.

    An article may not even have a new typed field: publishers may have sent anything under its name.
    """
    growing = set[str]() if _ARTICLE in old else _GROWING
    return dict(_differences(_tree(schema_type, old), _tree(schema_type, new), "", grows=False, growing=growing))


def _differences(old: Any, new: Any, place: str, *, grows: bool, growing: set[str]) -> Iterator[tuple[str, str]]:  # noqa: ANN401  parts of a schema
    if not isinstance(old, dict) or not isinstance(new, dict):
        if json.dumps(old) != json.dumps(new):
            yield place, f"{old!r} became {new!r}"
        return
    for name in old:
        if name in new:
            inside = not grows and name in growing
            yield from _differences(old[name], new[name], f"{place}/{name}", grows=inside, growing=growing)
        else:
            yield f"{place}/{name}", "is gone"
    for name in new.keys() - old.keys():
        if name in growing:  # the first field of its kind
            yield from _differences({}, new[name], f"{place}/{name}", grows=True, growing=growing)
        elif not grows or _is_needed(new[name]):
            yield f"{place}/{name}", "is new"


def _is_needed(field: Any) -> bool:  # noqa: ANN401  a part of a schema
    """Whether a reader of Avro cannot do without it. Other formats say so where the field does not stand."""
    return isinstance(field, dict) and "avro" in field and "default" not in field


def _tree(schema_type: SchemaType, text: str) -> Any:  # noqa: ANN401  of dicts, lists and values
    """A schema without words, its definitions where their references stand, and its fields by name."""
    if schema_type == "JSON":
        schema = json.loads(text)
        return _without_words(schema, schema.get("$defs", {}), named=False)
    if schema_type == "AVRO":
        return _by_name(json.loads(text), "avro")
    return _by_name(
        MessageToDict(load_files(Schema("PROTOBUF", text))[1], preserving_proto_field_name=True), "protobuf"
    )


def _without_words(part: Any, definitions: dict[str, Any], *, named: bool) -> Any:  # noqa: ANN401  parts of a schema
    """`named`: the keys of `part` are names of properties."""
    if isinstance(part, list):
        return [_without_words(each, definitions, named=False) for each in part]
    if not isinstance(part, dict):
        return part
    if not named and "$ref" in part:
        definition = definitions[part["$ref"].removeprefix("#/$defs/")]
        part = {**definition, **{name: value for name, value in part.items() if name != "$ref"}}
    return {
        name: _without_words(value, definitions, named=not named and name == "properties")
        for name, value in part.items()
        if named or name not in _WORDS | {"$defs"}
    }


def _by_name(part: Any, kind: str) -> Any:  # noqa: ANN401  parts of a schema
    if isinstance(part, dict):
        oneofs = [each["name"] for each in part.get("oneof_decl", ())]
        part = {name: value for name, value in part.items() if name not in _WORDS | {"oneof_decl"}}
        for field in part.get("field", ()):  # the compiler makes a oneof of each optional field, too
            index = field.pop("oneof_index", None)
            if index is not None and not field.get("proto3_optional"):
                field["oneof"] = oneofs[index]
        return {name: _by_name(value, kind) for name, value in part.items()}
    if isinstance(part, list) and part and all(isinstance(each, dict) for each in part):
        return {
            each.get("name", json.dumps(each)): {**_by_name(each, kind), **({"avro": True} if kind == "avro" else {})}
            for each in part
        }
    return [_by_name(each, kind) for each in part] if isinstance(part, list) else part
