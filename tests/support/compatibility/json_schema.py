"""JSON Schema: whether a reader's schema accepts every document that a writer's schema allows.

Keyword by keyword, as Confluent's registry compares: each constraint of the reader must follow from the same keyword of the
writer. So some changes count as incompatible that a person can show to be harmless; none counts as compatible that is not.
The content model decides about properties: an object without `additionalProperties` is open, so a property that only the
reader knows may already have been written with any value, and the registry refuses it.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any

from support.compatibility.findings import Finding, SchemaUnusable, Sides, Weight
from support.compatibility.json_nodes import LIMITS, MOST, NOTHING, JsonSchema, Node, canonical, parse
from support.compatibility.json_objects import compare_objects

__all__ = ["compare", "parse"]

_OPAQUE = (
    *(
        "not",
        "if",
        "then",
        "else",
        "contains",
        "propertyNames",
        "dependencies",
        "dependentSchemas",
    ),
    *("unevaluatedProperties", "unevaluatedItems", "$dynamicRef", "$recursiveRef"),
)
"""Compared as they stand."""
_ARRAY_KEYWORDS = {"items", "prefixItems", "additionalItems", "uniqueItems"}
_OBJECT_KEYWORDS = {"properties", "required", "additionalProperties", "patternProperties", "dependentRequired"}
_MAX_COMPARISONS = 10_000


def compare(writer: JsonSchema, reader: JsonSchema, sides: Sides) -> Iterator[Finding]:
    """What the reader's schema refuses of the documents that the writer's schema allows."""
    return Comparison(writer, reader, sides).schemas(writer.root, reader.root, "")


class Comparison:
    """One comparison. A pair that is being compared further up (a recursive schema) is taken for compatible there."""

    def __init__(self, writer: JsonSchema, reader: JsonSchema, sides: Sides) -> None:
        self.writer, self.reader, self.sides = writer, reader, sides
        self._open: set[tuple[int, int]] = set()
        self._left = _MAX_COMPARISONS

    def schemas(self, written: Any, read: Any, place: str) -> Iterator[Finding]:  # noqa: ANN401  a schema, as it stands
        """The findings for one pair of schemas."""
        self._left -= 1
        if self._left < 0:
            raise SchemaUnusable("its combinations are nested too deeply to be compared")
        writer, reader = self.writer.node(written), self.reader.node(read)
        pair = (id(writer), id(reader))
        if not reader or writer == NOTHING or pair in self._open:
            return
        if reader == NOTHING:
            yield Finding(place or "/", f"the {self.sides.reader} schema allows no value here")
            return
        self._open.add(pair)
        found = list(self._keywords(writer, reader, place))
        self._open.discard(pair)
        yield from found

    def breaks(self, written: Any, read: Any) -> bool:  # noqa: ANN401  a schema, as it stands
        """Whether the registry refuses this pair."""
        return any(finding.weight is not Weight.PROMISED for finding in self.schemas(written, read, ""))

    def _keywords(self, writer: Node, reader: Node, place: str) -> Iterator[Finding]:
        yield from self._types(writer, reader, place)
        yield from self._values(writer, reader, place)
        yield from self._limits(writer, reader, place)
        if _may_be("array", writer) and (writer.keys() | reader.keys()) & _ARRAY_KEYWORDS:
            yield from self._arrays(writer, reader, place)
        if _may_be("object", writer) and (writer.keys() | reader.keys()) & _OBJECT_KEYWORDS:
            yield from compare_objects(self, writer, reader, place)
        yield from self._combinations(writer, reader, place)
        yield from self._opaque(writer, reader, place)

    def _types(self, writer: Node, reader: Node, place: str) -> Iterator[Finding]:
        read, written = _types_of(reader), _types_of(writer)
        if read is None:
            return
        if written is None:
            listed = writer.get("enum", [writer["const"]] if "const" in writer else [])
            known = bool(listed) and {_TYPES[type(value)] for value in listed} <= {*read, *_also(read)}
            text = f"the {self.sides.reader} schema allows {_or(read)} only, the {self.sides.writer} one says no type"
            yield Finding(place or "/", text, Weight.REGISTRY if known else Weight.BREAKS)
            return
        unread = [each for each in written if each not in {*read, *_also(read)}]
        if unread:
            yield Finding(
                place or "/",
                f"the {self.sides.writer} schema allows {_or(unread)}, the {self.sides.reader} one {_or(read)} only",
            )

    def _values(self, writer: Node, reader: Node, place: str) -> Iterator[Finding]:
        if "const" in reader and ("const" not in writer or canonical(writer["const"]) != canonical(reader["const"])):
            yield Finding(
                f"{place}/const",
                f"the {self.sides.reader} schema allows one value only, the {self.sides.writer} one others",
            )
        if "enum" not in reader:
            return
        if "enum" not in writer:
            known = "const" in writer and canonical(writer["const"]) in map(canonical, reader["enum"])
            text = f"the {self.sides.reader} schema lists the values, the {self.sides.writer} one does not"
            yield Finding(f"{place}/enum", text, Weight.REGISTRY if known else Weight.BREAKS)
            return
        allowed = set(map(canonical, reader["enum"]))
        unknown = [canonical(value).decode() for value in writer["enum"] if canonical(value) not in allowed]
        if unknown:
            yield Finding(f"{place}/enum", f"the {self.sides.reader} schema does not allow {', '.join(unknown)}")

    def _limits(self, writer: Node, reader: Node, place: str) -> Iterator[Finding]:
        for keyword in sorted(reader.keys() & (LIMITS | {"pattern", "uniqueItems"})):
            if not _implied(keyword, writer.get(keyword), reader[keyword]):
                was = f"is {writer[keyword]}" if keyword in writer else "is not there"
                text = (
                    f"it {was} in the {self.sides.writer} schema, and {reader[keyword]} in the {self.sides.reader} one"
                )
                yield Finding(f"{place}/{keyword}", text)

    def _arrays(self, writer: Node, reader: Node, place: str) -> Iterator[Finding]:
        written, rest_written = _items(writer)
        read, rest_read = _items(reader)
        for index in range(max(len(written), len(read))):
            one = written[index] if index < len(written) else rest_written
            other = read[index] if index < len(read) else rest_read
            yield from self.schemas(one, other, f"{place}/prefixItems/{index}")
        yield from self.schemas(rest_written, rest_read, f"{place}/items")

    def _combinations(self, writer: Node, reader: Node, place: str) -> Iterator[Finding]:
        plain = self.writer.without_combinations(writer)
        if not self._all_of(writer, reader, plain):
            yield Finding(
                f"{place}/allOf", f"the {self.sides.reader} schema demands what the {self.sides.writer} one does not"
            )
        for keyword in ("anyOf", "oneOf"):
            if keyword in reader and not self._some_of(keyword, writer, reader, plain):
                yield Finding(
                    f"{place}/{keyword}",
                    f"the {self.sides.writer} schema allows what no alternative of the {self.sides.reader} one allows",
                )

    def _all_of(self, writer: Node, reader: Node, plain: Node) -> bool:
        demanded = [part for part in reader.get("allOf", ()) if self.breaks(plain, part)]
        given = writer.get("allOf", [])
        return _matched([[not self.breaks(one, part) for one in given] for part in demanded])

    def _some_of(self, keyword: str, writer: Node, reader: Node, plain: Node) -> bool:
        alternatives = reader[keyword]
        if keyword == "oneOf" and not self._exclusive(alternatives):
            return self._same(keyword, writer, reader)
        source = keyword if keyword in writer else "oneOf" if keyword == "anyOf" and "oneOf" in writer else ""
        if not source:
            return any(not self.breaks(plain, each) for each in alternatives)
        return _matched([[not self.breaks(one, each) for each in alternatives] for one in writer[source]])

    def _exclusive(self, alternatives: list[Any]) -> bool:
        """Whether no document fits two of them, because of its type. Otherwise one that fits `oneOf` may fit too many."""
        types = [_types_of(self.reader.node(each)) for each in alternatives]
        kinds = [kind for each in types for kind in {*(each or ()), *_also(each or [])}]
        return None not in types and len(kinds) == len(set(kinds))

    def _same(self, keyword: str, writer: Node, reader: Node) -> bool:
        """Whether a keyword is the same in both, with everything that it refers to."""
        text = canonical(reader[keyword])
        same = keyword in writer and canonical(writer[keyword]) == text
        return same and (b'ef":' not in text or self.writer.text == self.reader.text)

    def _opaque(self, writer: Node, reader: Node, place: str) -> Iterator[Finding]:
        for keyword in _OPAQUE:
            if keyword not in reader:
                continue
            if not self._same(keyword, writer, reader):
                yield Finding(
                    f"{place}/{keyword}",
                    "it differs between the two schemas, or refers to something else; such changes are not followed",
                )


_TYPES = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    dict: "object",
    type(None): "null",
}


def _also(types: list[str]) -> list[str]:
    return ["integer"] if "number" in types else []


def _types_of(node: Node) -> list[str] | None:
    found = node.get("type")
    return [found] if isinstance(found, str) else found


def _may_be(kind: str, node: Node) -> bool:
    found = _types_of(node)
    return found is None or kind in found


def _or(names: list[str]) -> str:
    return " or ".join(names)


def _items(node: Node) -> tuple[list[Any], Any]:
    """The schemas of the first items, and that of all others."""
    items = node.get("items", True)
    if isinstance(items, list):
        return items, node.get("additionalItems", True)
    return node.get("prefixItems", []), items


def _implied(keyword: str, writer: Any, reader: Any) -> bool:  # noqa: ANN401  whatever stands there
    """Whether the writer's limit keeps the reader's."""
    if keyword == "uniqueItems":
        return reader is not True or writer is True
    if isinstance(reader, bool | str) or not isinstance(writer, int | float) or isinstance(writer, bool):
        return canonical(writer) == canonical(reader)
    if keyword == "multipleOf":
        return bool(reader) and Decimal(str(writer)) % Decimal(str(reader)) == 0
    return bool(writer <= reader if keyword in MOST else writer >= reader)


def _matched(fits: list[list[bool]]) -> bool:
    """Whether every row can have a column of its own that fits (Kuhn's matching)."""
    row_of: dict[int, int] = {}

    def placed(row: int, tried: set[int]) -> bool:
        for column, fit in enumerate(fits[row]):
            if fit and column not in tried:
                tried.add(column)
                if column not in row_of or placed(row_of[column], tried):
                    row_of[column] = row
                    return True
        return False

    return all(placed(row, set()) for row in range(len(fits)))
