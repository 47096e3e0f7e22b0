"""Avro's schema resolution: whether a reader's schema can read what a writer's schema wrote.

The rules are those of Avro's specification ("Schema Resolution"), which Confluent's registry applies through Avro's own
Java library. That library's Python counterpart (`avro.compatibility`) keeps sentences and places in separate sets and does
not resolve the namespace of an alias, so it cannot say what is wrong where.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from support.compatibility.findings import Finding, SchemaUnusable, Sides, Weight

_PROMOTIONS = {
    "int": {"long", "float", "double"},
    "long": {"float", "double"},
    "float": {"double"},
    "string": {"bytes"},
    "bytes": {"string"},
}
_NAMED = {"record", "error", "enum", "fixed"}
_MAX_COMPARISONS = 100_000


class Avro:
    """A parsed schema: `root`, and the definition of each named type by its full name."""

    def __init__(self, root: Any, named: dict[str, Any]) -> None:  # noqa: ANN401  a string, list or object
        self.root = root
        self.named = named

    def resolved(self, schema: Any) -> Any:  # noqa: ANN401  a string, list or object
        """A name's definition, or the schema itself; `{"type": X}` without more is X."""
        while True:
            if isinstance(schema, str) and schema in self.named:
                return self.named[schema]
            if not isinstance(schema, dict) or (isinstance(schema["type"], str) and schema["type"] not in self.named):
                return schema
            schema = schema["type"]


def parse(text: str) -> Avro:
    """A schema from JSON, checked by fastavro. Raises SchemaUnusable."""
    import fastavro  # noqa: PLC0415  in the extra `registry`

    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise SchemaUnusable(f"it is not JSON: {error}") from None
    named: dict[str, Any] = {}
    try:
        root = fastavro.parse_schema(value, named)
    except RecursionError:
        raise
    except Exception as error:  # noqa: BLE001  it raises whatever it stumbles over
        raise SchemaUnusable(f"it is no Avro schema: {error}") from None
    return Avro(root, named)


def compare(writer: Avro, reader: Avro, sides: Sides) -> Iterator[Finding]:
    """What a reader with the one schema cannot read of what is written with the other."""
    return _Comparison(writer, reader, sides).schemas(writer.root, reader.root, "")


def _kind(schema: Any) -> str:  # noqa: ANN401  a string, list or object
    if isinstance(schema, list):
        return "union"
    return str(schema["type"] if isinstance(schema, dict) else schema)


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _shown(schema: Any) -> str:  # noqa: ANN401  a string, list or object
    if isinstance(schema, list):
        return " or ".join(_shown(branch) for branch in schema)
    return f"{_kind(schema)} {schema['name']}" if _kind(schema) in _NAMED else _kind(schema)


class _Comparison:
    def __init__(self, writer: Avro, reader: Avro, sides: Sides) -> None:
        self._writer, self._reader, self._sides = writer, reader, sides
        self._open: set[tuple[str, str]] = set()
        self._left = _MAX_COMPARISONS

    def schemas(self, writer: Any, reader: Any, place: str) -> Iterator[Finding]:  # noqa: ANN401  as in `resolved`
        self._left -= 1
        if self._left < 0:
            raise SchemaUnusable("its unions are nested too deeply to be compared")
        writer, reader = self._writer.resolved(writer), self._reader.resolved(reader)
        if isinstance(writer, list):
            yield from self._written_union(writer, reader, place)
        elif isinstance(reader, list):
            yield from self._read_union(writer, reader, place)
        elif _kind(writer) == _kind(reader):
            yield from self._same_kind(writer, reader, place)
        elif _kind(reader) not in _PROMOTIONS.get(_kind(writer), ()):
            yield self._mismatch(writer, reader, place)

    def _mismatch(self, writer: Any, reader: Any, place: str) -> Finding:  # noqa: ANN401  as in `resolved`
        return Finding(
            place or "/",
            f"the {self._sides.writer} schema writes {_shown(writer)}, "
            f"and the {self._sides.reader} one reads {_shown(reader)}",
        )

    def _written_union(self, writer: list[Any], reader: Any, place: str) -> Iterator[Finding]:  # noqa: ANN401  as above
        for branch in writer:
            if list(self._counting(branch, reader, place)):
                branches = reader if isinstance(reader, list) else [reader]
                named = _shown(self._writer.resolved(branch))
                same = [each for each in branches if _shown(self._reader.resolved(each)) == named]
                if same:
                    yield from self.schemas(branch, same[0], place)
                else:
                    yield self._mismatch(self._writer.resolved(branch), reader, place)

    def _read_union(self, writer: Any, reader: list[Any], place: str) -> Iterator[Finding]:  # noqa: ANN401  as above
        if all(list(self._counting(writer, branch, place)) for branch in reader):
            yield self._mismatch(writer, reader, place)

    def _counting(self, writer: Any, reader: Any, place: str) -> Iterator[Finding]:  # noqa: ANN401  as in `resolved`
        return (each for each in self.schemas(writer, reader, place) if each.weight is Weight.BREAKS)

    def _same_kind(self, writer: Any, reader: Any, place: str) -> Iterator[Finding]:  # noqa: ANN401  as in `resolved`
        kind = _kind(writer)
        if kind == "array":
            yield from self.schemas(writer["items"], reader["items"], f"{place}/items")
        elif kind == "map":
            yield from self.schemas(writer["values"], reader["values"], f"{place}/values")
        elif kind in _NAMED:
            yield from self._same_named(kind, writer, reader, place)
        yield from self._logical(writer, reader, place)

    def _same_named(self, kind: str, writer: dict[str, Any], reader: dict[str, Any], place: str) -> Iterator[Finding]:
        if not _names_match(writer, reader):
            yield self._mismatch(writer, reader, place)
            return
        if kind == "fixed" and writer["size"] != reader["size"]:
            yield Finding(place or "/", f"its size is {writer['size']} and {reader['size']} bytes")
        if kind == "enum":
            yield from self._symbols(writer, reader, place)
        if kind in {"record", "error"}:
            pair = (writer["name"], reader["name"])
            if pair in self._open:  # a recursive type, which is being compared further up
                return
            self._open.add(pair)
            found = list(self._fields(writer, reader, place))
            self._open.discard(pair)
            yield from found

    def _symbols(self, writer: dict[str, Any], reader: dict[str, Any], place: str) -> Iterator[Finding]:
        unknown = [symbol for symbol in writer["symbols"] if symbol not in reader["symbols"]]
        if unknown and reader.get("default") not in reader["symbols"]:
            yield Finding(
                f"{place}/symbols",
                f"the {self._sides.reader} schema does not know {', '.join(unknown)}, and the enum has no default",
            )
        elif unknown:
            text = f"the {self._sides.reader} schema reads {', '.join(unknown)} as {reader['default']}"
            yield Finding(f"{place}/symbols", text, Weight.PROMISED)

    def _fields(self, writer: dict[str, Any], reader: dict[str, Any], place: str) -> Iterator[Finding]:
        written = {field["name"]: field for field in writer["fields"]}
        used = set()
        for field in reader["fields"]:
            names = [field["name"], *field.get("aliases", ())]
            source = next((written[name] for name in names if name in written), None)
            here = f"{place}/fields/{field['name']}"
            if source is not None:
                used.add(source["name"])
                yield from self.schemas(source["type"], field["type"], here)
                if source["name"] != field["name"]:
                    yield Finding(
                        here,
                        f"the field is called {source['name']} in the {self._sides.writer} schema",
                        Weight.PROMISED,
                    )
            elif "default" not in field:
                yield Finding(
                    here,
                    f"only the {self._sides.reader} schema has this field, and it has no default",
                )
        for name in (name for name in written if name not in used):
            yield Finding(
                f"{place}/fields/{name}", f"the {self._sides.reader} schema has no such field", Weight.PROMISED
            )

    def _logical(self, writer: Any, reader: Any, place: str) -> Iterator[Finding]:  # noqa: ANN401  as in `resolved`
        one, other = (
            {key: schema.get(key) for key in ("logicalType", "precision", "scale")} if isinstance(schema, dict) else {}
            for schema in (writer, reader)
        )
        if (one or None) != (other or None) and (any(one.values()) or any(other.values())):
            names = f"{_logical_shown(one)} in the {self._sides.writer} schema, {_logical_shown(other)} in the other"
            yield Finding(place or "/", f"its logical type is {names}", Weight.PROMISED)


def _logical_shown(logical: dict[str, Any]) -> str:
    if not logical.get("logicalType"):
        return "none"
    numbers = ", ".join(f"{key} {logical[key]}" for key in ("precision", "scale") if logical[key] is not None)
    return f"{logical['logicalType']}{f' ({numbers})' if numbers else ''}"


def _names_match(writer: dict[str, Any], reader: dict[str, Any]) -> bool:
    """The same name without its namespace, or an alias of the reader with the writer's full name."""
    if _short(writer["name"]) == _short(reader["name"]):
        return True
    namespace = reader["name"].rpartition(".")[0]
    aliases = {
        alias if "." in alias or not namespace else f"{namespace}.{alias}" for alias in reader.get("aliases", ())
    }
    return writer["name"] in aliases
