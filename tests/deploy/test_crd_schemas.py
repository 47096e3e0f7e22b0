"""Strict schemas reject what the operator's API server would reject or drop."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from support.crd_schemas import FOLDER, KINDS, strict, write

FILES = sorted(FOLDER.rglob("*.json"))


def checked(schema: dict[str, Any]) -> Draft202012Validator:
    """Validates by the schema, which is checked."""
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def accepts(schema: dict[str, Any], value: object) -> bool:
    """Whether the value is valid; also checks the schema."""
    return bool(checked(schema).is_valid(value))


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


def test_an_object_takes_what_it_lists_and_no_more() -> None:
    """Unknown properties are rejected, also inside lists and maps."""
    listed = {"type": "object", "properties": {"a": {"type": "string"}}}
    nested = strict({"type": "object", "properties": {"list": {"type": "array", "items": listed}}})
    assert accepts(nested, {"list": [{"a": "x"}]})
    assert not accepts(nested, {"list": [{"a": "x", "b": "y"}]})
    by_name = strict({"type": "object", "additionalProperties": listed})
    assert accepts(by_name, {"any": {"a": "x"}})
    assert not accepts(by_name, {"any": {"b": "x"}})


def test_what_is_said_to_be_open_stays_open() -> None:
    """Free-form objects, such as a Kafka topic's `config`, stay free-form."""
    assert accepts(strict({"type": "object", "x-kubernetes-preserve-unknown-fields": True}), {"anything": 1})


def test_kubernetes_own_ways_of_saying_it_are_translated() -> None:
    """int-or-string, nullable, exclusive bounds and inline pattern flags are converted."""
    assert accepts(strict({"x-kubernetes-int-or-string": True}), 80)
    assert accepts(strict({"x-kubernetes-int-or-string": True}), "http")
    assert not accepts(strict({"x-kubernetes-int-or-string": True}), 0.5)
    assert accepts(strict({"type": "string", "nullable": True}), None)
    assert not accepts(strict({"type": "number", "minimum": 0, "exclusiveMinimum": True}), 0)
    assert accepts(strict({"type": "string", "pattern": "^(?i)(abort|warn)?$"}), "Warn")


def test_a_combination_narrows_and_does_not_close() -> None:
    """`oneOf` lists only the mutually exclusive properties, so its parts stay open."""
    properties = {name: {"type": "string"} for name in "abc"}
    alternatives = [{"properties": {name: {}}, "required": [name]} for name in "ab"]
    schema = strict({"type": "object", "properties": properties, "oneOf": alternatives})
    assert accepts(schema, {"a": "x", "c": "y"})
    assert not accepts(schema, {"c": "y"})
    assert not accepts(schema, {"a": "x", "b": "y"})
