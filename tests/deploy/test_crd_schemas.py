"""Strict schemas reject what the operator's API server would reject or drop."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from support.crd_schemas import FOLDER, KINDS, Schema, strict, write

FILES = sorted(FOLDER.rglob("*.json"))


def accepts(schema: Schema, value: object) -> bool:
    """Whether the value is valid; also checks the schema."""
    Draft202012Validator.check_schema(schema)
    return bool(Draft202012Validator(schema).is_valid(value))


def test_there_is_a_schema_for_every_kind_that_the_chart_renders() -> None:
    """An empty folder would make the tests below vacuous."""
    assert sorted(kind.lower() for kind in KINDS) == [
        path.stem.split("_")[0] for path in sorted(FILES, key=lambda path: path.stem)
    ]


def test_a_definition_becomes_the_file_of_its_kind_and_version(tmp_path: Path) -> None:
    """Only the version that the chart renders is written, and no kind that it does not render."""
    spec = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}}}
    versions = [{"name": name, "schema": {"openAPIV3Schema": spec}} for name in ("v1beta2", "v1")]
    definition = {"spec": {"group": "g.io", "names": {"kind": "KafkaTopic"}, "versions": versions}}
    path = write(definition, tmp_path)
    assert path is not None
    assert path == tmp_path / "g.io" / "kafkatopic_v1.json"
    resource = {"apiVersion": "g.io/v1", "kind": "KafkaTopic", "metadata": {"name": "x"}}
    written = json.loads(path.read_text("utf-8"))
    assert accepts(written, {**resource, "spec": {"a": "x"}})
    assert not accepts(written, {**resource, "spec": {"b": "x"}})
    other = {"spec": {**definition["spec"], "names": {"kind": "Kafka"}}}
    assert write(other, tmp_path) is None


LISTED = {"type": "object", "properties": {"a": {"type": "string"}}}
ALTERNATIVES = [{"properties": {name: {}}, "required": [name]} for name in "ab"]
ONE_OF = {"type": "object", "properties": {name: {"type": "string"} for name in "abc"}, "oneOf": ALTERNATIVES}


@pytest.mark.parametrize(
    ("definition", "taken", "refused"),
    [
        ({"type": "array", "items": LISTED}, [[{"a": "x"}]], [[{"a": "x", "b": "y"}]]),
        ({"type": "object", "additionalProperties": LISTED}, [{"any": {"a": "x"}}], [{"any": {"b": "x"}}]),
        ({"type": "object", "x-kubernetes-preserve-unknown-fields": True}, [{"anything": 1}], []),
        ({"x-kubernetes-int-or-string": True}, [80, "http"], [0.5]),
        ({"type": "string", "nullable": True}, [None], []),
        ({"type": "number", "minimum": 0, "exclusiveMinimum": True}, [], [0]),
        ({"type": "string", "pattern": "^(?i)(abort|warn)?$"}, ["Warn"], []),
        (ONE_OF, [{"a": "x", "c": "y"}], [{"c": "y"}, {"a": "x", "b": "y"}]),
    ],
    ids=[
        "a list takes objects with what they list and no more",
        "a map takes objects with what they list and no more",
        "what is said to be open stays open",
        "a port is a number or a name",
        "null is taken where it may be",
        "a bound may be exclusive",
        "a flag may stand inside a pattern",
        "alternatives narrow an object and do not close it",
    ],
)
def test_kubernetes_own_ways_of_saying_it_are_translated(
    definition: Schema, taken: Sequence[object], refused: Sequence[object]
) -> None:
    """A field that an API server would drop is refused here."""
    schema = strict(definition)
    assert all(accepts(schema, value) for value in taken)
    assert not any(accepts(schema, value) for value in refused)
