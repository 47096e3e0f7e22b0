"""The rules for Avro, and Avro's own resolution as a witness: what is green can be read, what is red cannot."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import pytest
from support.compatibility import Level, SchemaUnusable, violations

ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
FIXED = {"type": "fixed", "name": "F", "size": 2}
LIST = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"], "default": None}]}


def record(*fields: dict[str, Any], **more: Any) -> dict[str, Any]:  # noqa: ANN401  keys of a schema
    """A record with these fields."""
    return {"type": "record", "name": "R", "namespace": "n", "fields": list(fields), **more}


def field(name: str, kind: Any = "string", **more: Any) -> dict[str, Any]:  # noqa: ANN401  a schema, keys of a field
    """A field."""
    return {"name": name, "type": kind, **more}


def found(old: Any, new: Any, level: Level = Level.BACKWARD) -> list[str]:  # noqa: ANN401  a schema
    """The violations, as they are shown."""
    return [str(each) for each in violations("AVRO", json.dumps(old), json.dumps(new), level)]


CASES: list[tuple[Any, Any, Any, list[str]]] = [
    # What is written, with which schema, read with which schema, and the places of the violations.
    (1, "int", "long", []),
    (1, "int", "double", []),
    (1, "long", "int", ["/"]),
    (1.5, "double", "float", ["/"]),
    ("a", "string", "bytes", []),
    (b"a", "bytes", "string", []),
    ("a", "string", "int", ["/"]),
    (True, "boolean", "int", ["/"]),
    (1, "int", ["null", "long"], []),
    (1, ["int"], "long", []),
    (None, ["null", "int"], "int", ["/"]),
    ("a", ["null", "string"], ["null", "int"], ["/"]),
    (["a"], {"type": "array", "items": "string"}, {"type": "array", "items": "int"}, ["/items"]),
    ({"k": 1}, {"type": "map", "values": "int"}, {"type": "map", "values": "long"}, []),
    ({"k": 1}, {"type": "map", "values": "long"}, {"type": "map", "values": "string"}, ["/values"]),
    ("B", ENUM, ENUM | {"symbols": ["B", "A", "C"]}, []),
    ("B", ENUM, ENUM | {"symbols": ["A"]}, ["/symbols"]),
    ("B", ENUM, ENUM | {"symbols": ["A"], "default": "A"}, []),
    ("A", ENUM, ENUM | {"name": "Other"}, ["/"]),
    ("A", ENUM, ENUM | {"name": "Other", "aliases": ["E"]}, []),
    (b"ab", FIXED, FIXED | {"size": 3}, ["/"]),
    ({"a": "x"}, record(field("a")), record(field("a"), field("b", default="")), []),
    ({"a": "x"}, record(field("a")), record(field("a"), field("b")), ["/fields/b"]),
    ({"a": "x", "b": "y"}, record(field("a"), field("b")), record(field("b")), []),
    ({"a": "x"}, record(field("a")), record(field("b", aliases=["a"])), []),
    ({"a": "x"}, record(field("a")), record(field("b")), ["/fields/b"]),
    ({"a": "x"}, record(field("a")), record(field("a", "int")), ["/fields/a"]),
    ({"a": "x"}, record(field("a")), record(field("a", ["null", "string"])), []),
    ({"next": {"next": None}}, LIST, LIST, []),
    (
        {"next": {"next": None}},
        LIST,
        {**LIST, "fields": [*LIST["fields"], {"name": "value", "type": "int"}]},
        ["/fields/value"],
    ),
    ({"a": 1}, record(field("a", {"type": "int"})), record(field("a", "long")), []),
]


@pytest.mark.parametrize(("value", "old", "new", "places"), CASES)
def test_each_rule_backward(value: Any, old: Any, new: Any, places: list[str]) -> None:  # noqa: ANN401  schemas
    """The place says what cannot be read; and fastavro, which resolves by the specification, agrees on a value."""
    assert places == [each.partition(": ")[0] for each in found(old, new)]
    buffer = io.BytesIO()
    fastavro.schemaless_writer(buffer, fastavro.parse_schema(old), value)
    buffer.seek(0)
    try:
        fastavro.schemaless_reader(buffer, fastavro.parse_schema(old), fastavro.parse_schema(new))
        readable = True
    except (fastavro._read_common.SchemaResolutionError, ValueError):
        readable = False
    assert readable is (places == [])


def test_an_alias_is_in_the_namespace_of_its_type() -> None:
    """`Old` in a type of namespace `n` is `n.Old`."""
    old = record(field("a"), name="Old")
    assert [] == found(old, record(field("a"), aliases=["Old"]))
    assert [] == found(old, record(field("a"), aliases=["n.Old"]))
    assert ["/"] == [each.partition(": ")[0] for each in found(old, record(field("a"), aliases=["m.Old"]))]


def test_our_promise_is_more_than_what_avro_resolves() -> None:
    """Removed, renamed, read as a default, or of another meaning: readable, and yet not what a consumer expects."""
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2}
    changes = [
        (record(field("a"), field("b", default="")), record(field("a")), "/fields/b"),
        (record(field("a", default="")), record(field("c", aliases=["a"], default="")), "/fields/c"),
        (record(field("a", decimal)), record(field("a", decimal | {"scale": 3})), "/fields/a"),
        (record(field("a", "bytes")), record(field("a", decimal)), "/fields/a"),
        (
            record(field("a", ENUM | {"default": "A"})),
            record(field("a", ENUM | {"symbols": ["A"], "default": "A"})),
            "/fields/a/symbols",
        ),
    ]
    for old, new, place in changes:
        assert [] == found(old, new, Level.FULL)
        assert [place] == [each.partition(": ")[0] for each in found(old, new, Level.PROMISE)]


def test_a_union_in_a_union_of_records_names_the_field() -> None:
    """Not only that no branch fits: which field of the branch with the same name does not."""
    old = record(field("a", ["null", record(field("x"), name="Inner")]))
    new = record(field("a", ["null", record(field("x", "int"), name="Inner")]))
    assert ["/fields/a/fields/x: the old schema writes string, and the new one reads int"] == found(old, new)


@pytest.mark.parametrize(
    "text",
    ["5", '{"type": "gone"}', '{"type": "array"}', '{"type": "record", "name": "R", "fields": [{"name": "a"}]}', "{"],
)
def test_what_is_no_schema_is_refused(text: str) -> None:
    """With a sentence, and never as an incompatible change."""
    with pytest.raises(SchemaUnusable, match=r"no Avro schema|not JSON"):
        violations("AVRO", text, '"string"', Level.BACKWARD)


def test_deep_schemas_are_refused() -> None:
    """A recursion of the parser or of the comparison ends in a sentence."""
    deep = '{"type": "array", "items": ' * 900 + '"string"' + "}" * 900
    with pytest.raises(SchemaUnusable, match="deep"):
        violations("AVRO", deep, deep, Level.BACKWARD)
