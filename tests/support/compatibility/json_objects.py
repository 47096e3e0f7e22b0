"""Objects of JSON Schemas: their properties, which of them are required, and what else an object may have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Protocol

from support.compatibility.findings import Finding, Sides, Weight
from support.compatibility.json_nodes import JsonSchema, Node


class _Comparison(Protocol):
    writer: JsonSchema
    reader: JsonSchema
    sides: Sides

    def schemas(self, written: Any, read: Any, place: str) -> Iterator[Finding]: ...  # noqa: ANN401  a schema, as it stands

    def breaks(self, written: Any, read: Any) -> bool: ...  # noqa: ANN401  a schema, as it stands


def compare_objects(comparison: _Comparison, writer: Node, reader: Node, place: str) -> Iterator[Finding]:
    """The findings for what two schemas say about objects."""
    written, read = writer.get("properties", {}), reader.get("properties", {})
    for name in read:
        here = f"{place}/properties/{name}"
        if name in written:
            yield from comparison.schemas(written[name], read[name], here)
        else:
            yield from _only_read(comparison, writer, reader, name, here)
    for name in written:
        if name not in read:
            yield from _only_written(comparison, writer, reader, name, f"{place}/properties/{name}")
    yield from _required(comparison, writer, reader, place)
    yield from _dependent(comparison, writer, reader, place)
    yield from _others(comparison, writer, reader, place)


def _only_read(comparison: _Comparison, writer: Node, reader: Node, name: str, place: str) -> Iterator[Finding]:
    """A property that only the reader knows. What counts is what the writer may have put under its name."""
    allowed = _undeclared(writer, name)
    if not comparison.breaks(allowed, reader["properties"][name]):
        return  # whether it is required is a matter of `required`
    sides = comparison.sides
    values = "other values" if comparison.writer.node(allowed) else "any value"
    text = f"only the {sides.reader} schema knows it, and the {sides.writer} one allows {values} under this name"
    yield Finding(place, text, Weight.READER_KNOWS_MORE)


def _only_written(comparison: _Comparison, writer: Node, reader: Node, name: str, place: str) -> Iterator[Finding]:
    allowed = _undeclared(reader, name)
    sides = comparison.sides
    weights = {finding.weight for finding in comparison.schemas(writer["properties"][name], allowed, place)}
    if weights - {Weight.PROMISED, Weight.REGISTRY}:
        yield Finding(place, f"the {sides.reader} schema has no such property, and does not allow it as an unknown one")
        return
    text = f"the {sides.reader} schema has no such property"
    yield Finding(place, text, Weight.PROMISED)
    if Weight.REGISTRY in weights:
        yield Finding(place, text, Weight.REGISTRY)


def _required(comparison: _Comparison, writer: Node, reader: Node, place: str) -> Iterator[Finding]:
    for name in reader.get("required", ()):
        if name not in writer.get("required", ()):
            sides = comparison.sides
            yield Finding(
                f"{place}/required/{name}", f"the {sides.reader} schema requires it, the {sides.writer} one does not"
            )


def _dependent(comparison: _Comparison, writer: Node, reader: Node, place: str) -> Iterator[Finding]:
    """Properties that are required if another one is there; it may be one that only the reader knows."""
    for name, needed in reader.get("dependentRequired", {}).items():
        given = {*writer.get("required", ()), *writer.get("dependentRequired", {}).get(name, ())}
        if lacking := [each for each in needed if each not in given]:
            new = name not in writer.get("properties", {})
            text = f"with it, the {comparison.sides.reader} schema requires {', '.join(lacking)}"
            weight = Weight.READER_KNOWS_MORE if new else Weight.BREAKS
            yield Finding(f"{place}/dependentRequired/{name}", text, weight)


def _others(comparison: _Comparison, writer: Node, reader: Node, place: str) -> Iterator[Finding]:
    for pattern, schema in reader.get("patternProperties", {}).items():
        written = writer.get("patternProperties", {}).get(pattern, writer.get("additionalProperties", True))
        yield from comparison.schemas(written, schema, f"{place}/patternProperties/{pattern}")
    yield from comparison.schemas(
        writer.get("additionalProperties", True),
        reader.get("additionalProperties", True),
        f"{place}/additionalProperties",
    )
    if reader.get("additionalProperties", True) not in (True, {}):
        for pattern, schema in writer.get("patternProperties", {}).items():
            if pattern not in reader.get("patternProperties", {}):
                yield from comparison.schemas(
                    schema, reader["additionalProperties"], f"{place}/patternProperties/{pattern}"
                )


def _undeclared(node: Node, name: str) -> Any:  # noqa: ANN401  a schema, as it stands
    """What an object may have under a name that is not among its properties."""
    for pattern, schema in node.get("patternProperties", {}).items():
        if _fits(pattern, name):
            return schema
    if node.get("unevaluatedProperties") is False and "additionalProperties" not in node:
        return False
    return node.get("additionalProperties", True)


def _fits(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:  # a pattern of another dialect
        return False
