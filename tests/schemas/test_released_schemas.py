"""Today's schemas against the released ones: optional fields may come, and all else stays as it is.

That is far stricter than a registry, and far simpler: of two schemas, whatever is not an addition that readers ignore is
named. What is in `before-0.1.0` is no promise yet: a change that is decided on is made there, too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict
from jsonschema import Draft7Validator, Draft202012Validator
from support.offenders import assert_none
from support.schema_changes import FILES, changes, contract

from enricher.worker.articles.formats.protobuf_schema import load_files
from enricher.worker.articles.schemas import Schema
from enricher.worker.contracts import SchemaType, record_schema

SCHEMAS = Path(__file__).parents[2] / "schemas"
RELEASED = sorted(path for path in (SCHEMAS / "released").glob("*/*") if path.is_file())
_TYPES: dict[str, SchemaType] = {".avsc": "AVRO", ".proto": "PROTOBUF", ".json": "JSON"}
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


def broken(released: Path) -> dict[str, str]:
    """What today's schema of this name does to the released one: place and sentence."""
    today = SCHEMAS / released.name
    assert today.exists(), f"{released.name} was released and is gone"
    return broken_promises(_TYPES[released.suffix], released.read_text("utf-8"), today.read_text("utf-8"))


def test_todays_schemas_keep_what_was_released() -> None:
    """Optional fields may come. Everything else needs a new version, which is a file with another name."""
    assert {"article.v1.schema.json", "enriched-record.v1.schema.json"} <= {path.name for path in RELEASED}
    assert_none(f"{path.name}: {found}" for path in RELEASED if (found := broken(path)))


@pytest.mark.slow
@pytest.mark.parametrize("schema_type", FILES)
def test_the_promise_tells_allowed_changes_from_breaking_ones(schema_type: SchemaType) -> None:
    """Green on what version 1 may gain, red on what would need version 2, six of each."""
    old, found = contract(schema_type), changes(schema_type)
    assert [True] * 6 + [False] * 6 == [change.allowed for change in found]
    assert 13 == len({old, *(change.text for change in found)})
    verdicts = {change: broken_promises(schema_type, old, change.text) for change in found}
    assert_none(f"{change}: {broken}" for change, broken in verdicts.items() if change.allowed is not (broken == {}))


def test_a_breaking_change_would_be_seen() -> None:
    """The negative control: another type of any one property, in each of the released files."""
    missed = []
    for path in RELEASED:
        schema = json.loads(path.read_text("utf-8"))
        for name in schema["properties"]:
            changed = json.loads(json.dumps(schema))
            changed["properties"][name] = {"type": "boolean"}
            if not broken_promises("JSON", json.dumps(schema), json.dumps(changed)):
                missed.append(f"{path.name}: {name}")
    assert_none(missed)


def test_an_article_gains_no_typed_field() -> None:
    """Every article that was accepted is accepted, whatever publishers have sent under a name that has come since."""
    schema = json.loads((SCHEMAS / "article.v1.schema.json").read_text("utf-8"))
    later = schema | {"properties": schema["properties"] | {"later": {"type": "string"}}}
    assert {"/properties/later": "is new"} == broken_promises("JSON", json.dumps(schema), json.dumps(later))


def test_the_schema_that_is_registered_accepts_what_the_contract_accepts() -> None:
    """It is the same schema as draft 7, without its `$id`: shown on every valid and invalid example."""
    contract = Draft202012Validator(json.loads((SCHEMAS / "enriched-record.v1.schema.json").read_text("utf-8")))
    registered = Draft7Validator(json.loads(record_schema("JSON")))
    Draft7Validator.check_schema(json.loads(record_schema("JSON")))
    examples = sorted((SCHEMAS / "examples" / "enriched-record.v1").rglob("*.json"))
    verdicts = {path.parent.name for path in examples}
    assert {"valid", "invalid"} == verdicts
    for path in examples:
        value = json.loads(path.read_text("utf-8"))
        assert (path.parent.name == "valid") is contract.is_valid(value) is registered.is_valid(value), path.name
    differing = {"$schema", "$id"}
    assert {k: v for k, v in contract.schema.items() if k not in differing} == {
        k: v for k, v in registered.schema.items() if k not in differing
    }


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
