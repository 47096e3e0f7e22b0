"""The rules for JSON Schema: each against documents, which one side accepts and the other does not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from support.compatibility import Level, SchemaUnusable, violations
from support.schema_changes import contract

OPEN: dict[str, Any] = {"type": "object", "properties": {"a": {"type": "string"}}}
CLOSED = OPEN | {"additionalProperties": False}
PARTLY = OPEN | {"additionalProperties": {"type": "string"}}
RECURSIVE: dict[str, Any] = {
    "$ref": "#/$defs/tree",
    "$defs": {
        "tree": {"type": "object", "properties": {"left": {"$ref": "#/$defs/tree"}, "value": {"type": "number"}}}
    },
}


def found(old: Any, new: Any, level: Level = Level.BACKWARD) -> list[str]:  # noqa: ANN401  a schema
    """The violations, as they are shown."""
    return [str(each) for each in violations("JSON", json.dumps(old), json.dumps(new), level)]


def with_property(schema: dict[str, Any], name: str, value: Any) -> dict[str, Any]:  # noqa: ANN401  a schema
    """The schema with one more property."""
    return schema | {"properties": schema["properties"] | {name: value}}


@pytest.mark.parametrize(
    ("old", "new", "places"),
    [
        # An open content model: an older document may have anything under a name that is not declared.
        (OPEN, with_property(OPEN, "b", {"type": "string"}), ["/properties/b"]),
        (OPEN, with_property(OPEN, "b", {}), []),
        (OPEN, with_property(OPEN, "b", value=True), []),
        (with_property(OPEN, "b", {"type": "string"}), OPEN, []),
        # A closed one: nothing was there, and nothing else may come.
        (CLOSED, with_property(CLOSED, "b", {"type": "string"}), []),
        (CLOSED, with_property(CLOSED, "b", {"type": "string"}) | {"required": ["b"]}, ["/required/b"]),
        (with_property(CLOSED, "b", {"type": "string"}), CLOSED, ["/properties/b"]),
        (CLOSED, OPEN, []),
        (OPEN, CLOSED, ["/additionalProperties"]),
        # A partially open one: what was there has a known schema.
        (PARTLY, with_property(PARTLY, "b", {"type": ["string", "null"]}), []),
        (PARTLY, with_property(PARTLY, "b", {"type": "number"}), ["/properties/b"]),
        (with_property(PARTLY, "b", {"type": "string"}), PARTLY, []),
        (with_property(PARTLY, "b", {"type": "number"}), PARTLY, ["/properties/b"]),
        (OPEN | {"patternProperties": {"^b": {"type": "number"}}}, with_property(OPEN, "b", {"type": "number"}), []),
        # Types and values.
        ({"type": "integer"}, {"type": "number"}, []),
        ({"type": "number"}, {"type": "integer"}, ["/"]),
        ({"type": "string"}, {"type": ["string", "null"]}, []),
        ({"type": ["string", "null"]}, {"type": "string"}, ["/"]),
        ({}, {"type": "string"}, ["/"]),
        ({"type": "string"}, {}, []),
        ({"type": "string"}, False, ["/"]),
        (False, {"type": "string"}, []),
        ({"enum": ["a"]}, {"enum": ["a", "b"]}, []),
        ({"enum": ["a", "b"]}, {"enum": ["a"]}, ["/enum"]),
        ({"const": 1}, {"const": 2}, ["/const"]),
        ({"const": 1}, {"const": True}, ["/const"]),
        # Limits.
        ({"minLength": 1}, {"minLength": 0}, []),
        ({"minLength": 1}, {"minLength": 2}, ["/minLength"]),
        ({"maximum": 1}, {"maximum": 2}, []),
        ({"maximum": 2}, {"maximum": 1.5}, ["/maximum"]),
        ({}, {"maxItems": 3}, ["/maxItems"]),
        ({"pattern": "a"}, {"pattern": "b"}, ["/pattern"]),
        ({"multipleOf": 4}, {"multipleOf": 2}, []),
        ({"multipleOf": 2}, {"multipleOf": 4}, ["/multipleOf"]),
        ({}, {"uniqueItems": True}, ["/uniqueItems"]),
        # Arrays.
        ({"items": {"type": "integer"}}, {"items": {"type": "number"}}, []),
        ({"items": {"type": "number"}}, {"items": {"type": "integer"}}, ["/items"]),
        ({"prefixItems": [{"type": "string"}]}, {"prefixItems": [{}, {"type": "null"}]}, ["/prefixItems/1"]),
        ({"items": [{"type": "string"}]}, {"items": [{"type": "null"}]}, ["/prefixItems/0"]),
        # Combinations.
        ({"type": "string"}, {"anyOf": [{"type": "string"}, {"type": "null"}]}, []),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, {"anyOf": [{"type": "string"}]}, ["/anyOf"]),
        ({"anyOf": [{"type": "string"}]}, {"anyOf": [{"type": "null"}, {"type": "string"}]}, []),
        ({"allOf": [{"minLength": 2}]}, {"allOf": [{"minLength": 1}]}, []),
        ({"allOf": [{"minLength": 1}]}, {"allOf": [{"minLength": 1}, {"maxLength": 5}]}, ["/allOf"]),
        # `oneOf` is `anyOf` only if no document fits two of its alternatives.
        ({"type": "string"}, {"oneOf": [{"type": "string"}, {"type": "null"}]}, []),
        ({"type": "string"}, {"oneOf": [{"type": "string"}, {"minLength": 1}]}, ["/oneOf"]),
        ({"type": "integer"}, {"oneOf": [{"type": "integer"}, {"type": "number"}]}, ["/oneOf"]),
        ({"oneOf": [{"minLength": 1}, {"maximum": 1}]}, {"oneOf": [{"minLength": 1}, {"maximum": 1}]}, []),
        ({"not": {"type": "null"}}, {"not": {"type": "null"}}, []),
        ({}, {"not": {"type": "null"}}, ["/not"]),
        ({"not": {"type": "null"}}, {}, []),
        ({}, {"dependentRequired": {"a": ["b"]}}, ["/dependentRequired/a"]),
        # References and recursion.
        (RECURSIVE, RECURSIVE, []),
        (RECURSIVE, {**RECURSIVE, "description": "a tree"}, []),
        (
            RECURSIVE,
            {"$ref": "#/$defs/tree", "$defs": {"tree": RECURSIVE["$defs"]["tree"] | {"required": ["value"]}}},
            ["/required/value"],
        ),
    ],
)
def test_each_rule_backward(old: Any, new: Any, places: list[str]) -> None:  # noqa: ANN401  schemas
    """Who reads with the new schema reads what the old one allowed; the place says what is in the way."""
    assert places == [each.partition(": ")[0] for each in found(old, new)]


def test_full_looks_both_ways_and_transitive_says_the_same_of_two() -> None:
    """A place that is wrong in both directions is told once."""
    old, new = OPEN, with_property(OPEN, "a", {"type": "number"})
    assert 1 == len(found(old, new, Level.FULL))
    for name in ("BACKWARD", "FORWARD", "FULL"):
        assert found(old, new, Level(name)) == found(old, new, Level(f"{name}_TRANSITIVE"))


def test_a_change_behind_an_opaque_keyword_is_not_missed() -> None:
    """`not` is compared as it stands; if it refers to a definition, the definitions must be the same too."""
    old = {"not": {"$ref": "#/$defs/x"}, "$defs": {"x": {"type": "null"}}}
    new = {"not": {"$ref": "#/$defs/x"}, "$defs": {"x": {"type": ["null", "string"]}}}
    assert ["/not"] == [each.partition(": ")[0] for each in found(old, new)]
    assert [] == found(old, old)


def test_branching_without_end_is_refused_and_not_waited_for() -> None:
    """Combinations of combinations: a bound on the work, and a sentence."""
    schema: dict[str, Any] = {"type": "null"}
    for _ in range(8):
        schema = {"anyOf": [schema, dict(schema), dict(schema)]}
    with pytest.raises(SchemaUnusable, match="too deeply"):
        found(schema, {"anyOf": [schema, {"type": "string"}]})


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "not JSON"),
        ('{"$ref": "other.json"}', "not in the same file"),
        ('{"$ref": "#/$defs/gone"}', "which is not there"),
        ('{"$ref": "#/a", "a": {"$ref": "#"}}', "leads to itself"),
        ('{"$ref": "#"}', "leads to itself"),
        ('{"properties": 5}', "not as JSON Schema describes"),
        ('{"properties": {"x": 5}, "required": 7}', "not as JSON Schema describes"),
        ('{"anyOf": [' * 400 + "{}" + "]}" * 400, "too deeply"),
    ],
)
def test_what_is_no_schema_is_refused(text: str, reason: str) -> None:
    """With a sentence, and never as an incompatible change."""
    with pytest.raises(SchemaUnusable, match=reason):
        violations("JSON", contract("JSON"), text, Level.PROMISE)


_KEYWORDS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["string", "number", "integer", "object", "array", ["string", "null"]]),
        "minLength": st.integers(0, 3),
        "maximum": st.integers(0, 3),
        "enum": st.lists(st.sampled_from(["a", "b", 1, None]), min_size=1, max_size=3, unique=True),
        "const": st.sampled_from(["a", 1]),
        "required": st.lists(st.sampled_from(["x", "y"]), max_size=2, unique=True),
        "maxItems": st.integers(0, 2),
        "maxProperties": st.integers(0, 2),
    },
)
_SCHEMAS = st.recursive(
    st.booleans() | _KEYWORDS,
    lambda inner: st.builds(
        lambda base, more: {**base, **more},
        _KEYWORDS,
        st.fixed_dictionaries(
            {},
            optional={
                "properties": st.dictionaries(st.sampled_from(["x", "y"]), inner, max_size=2),
                "patternProperties": st.dictionaries(st.sampled_from(["^x", "y"]), inner, max_size=1),
                "additionalProperties": inner,
                "items": inner,
                "prefixItems": st.lists(inner, max_size=2),
                "anyOf": st.lists(inner, min_size=1, max_size=2),
                "oneOf": st.lists(inner, min_size=1, max_size=2),
                "allOf": st.lists(inner, min_size=1, max_size=2),
                "not": inner,
                "dependentRequired": st.just({"x": ["y"]}),
            },
        ),
    ),
    max_leaves=4,
)
_VALUES = st.recursive(
    st.sampled_from(["", "a", "b", "long", 0, 1, 2.5, None, True]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["x", "y", "z"]), inner, max_size=3),
    max_leaves=5,
)


@settings(max_examples=20)
@given(_SCHEMAS, _SCHEMAS, _VALUES)
def test_what_counts_as_backward_compatible_accepts_every_older_document(old: Any, new: Any, value: Any) -> None:  # noqa: ANN401
    """The claim that matters, on arbitrary schemas: no green verdict while a document shows the contrary."""
    assume(Draft202012Validator(old).is_valid(value) and not Draft202012Validator(new).is_valid(value))
    assert [] != found(old, new)


@given(_SCHEMAS)
def test_no_schema_differs_from_itself(schema: Any) -> None:  # noqa: ANN401  a schema
    """Whatever it says; a false alarm here would end every check."""
    assert [] == found(schema, schema, Level.FULL)
