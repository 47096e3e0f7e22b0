"""Functions that read Avro's types, one for each type of a schema: payload and position -> value and the position behind it.

Nothing is reserved because a length or a count says so: text and bytes are cut from the payload, and items are counted
before the first one is read. IndexError and `struct.error`: the payload ends too early.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from enricher.worker.articles.formats.avro_primitives import RAW, Reader, fixed, groups, long, string
from enricher.worker.articles.formats.avro_schema import AvroSchema
from enricher.worker.articles.formats.avro_values import conversion
from enricher.worker.articles.formats.limits import MAX_LEVELS, Budget, name_bytes, unreadable


class Readers:
    """Makes the readers of one schema. Types that are alike share a reader: one with a name, or of the same parts.

    `named`: the parsed types that names mean.
    """

    def __init__(self, named: Mapping[str, AvroSchema]) -> None:
        self._by_name: dict[str, Reader] = {}
        self._references: dict[str, Reader] = {}
        self._by_parts: dict[tuple[object, ...], Reader] = {}
        for schema in named.values():
            self.reader(schema)

    def reader(self, schema: AvroSchema) -> Reader:
        """The reader of a parsed schema."""
        if isinstance(schema, str):
            return _PRIMITIVES.get(schema) or self._reference(schema)
        if isinstance(schema, list):
            branches = [self.reader(branch) for branch in schema]
            return self._share(_union, branches, *map(id, branches))
        match schema["type"]:
            case "array":
                item = self.reader(schema["items"])
                return self._share(_array, item, id(item))
            case "map":
                item = self.reader(schema["values"])
                return self._share(_map, item, id(item))
            case "record" | "enum" | "fixed":
                name = schema["name"]
                if name not in self._by_name:
                    self._by_name[name] = self._reader_by_name(schema)
                return self._by_name[name]
            case kind:
                return _read_as(RAW[kind], kind, schema)

    def _reader_by_name(self, schema: AvroSchema) -> Reader:
        kind = schema["type"]
        if kind == "record":
            return _record([(each["name"], each["type"], self.reader(each["type"])) for each in schema["fields"]])
        return _enum(schema["symbols"]) if kind == "enum" else _read_as(fixed(schema["size"]), kind, schema)

    def _share(self, make: Callable[[Any], Reader], inner: Any, *parts: int) -> Reader:  # noqa: ANN401  a reader or several
        key = (make, *parts)
        if key not in self._by_parts:
            self._by_parts[key] = make(inner)
        return self._by_parts[key]

    def _reference(self, name: str) -> Reader:
        """The reader of a type that is declared elsewhere, perhaps around this one. It is made before anything is read."""
        by_name = self._by_name

        def read(payload: bytes, position: int, budget: Budget) -> tuple[Any, int]:
            budget.levels += 1
            if budget.levels > MAX_LEVELS:
                raise unreadable("Avro", f"more than {MAX_LEVELS} levels")
            value, position = by_name[name](payload, position, budget)
            budget.levels -= 1
            return value, position

        return self._references.setdefault(name, read)


_STRING_OR_NULL = ["string", "null"]
_OPTIONAL_STRINGS = (["null", "string"], _STRING_OR_NULL)


def _record(fields: Sequence[tuple[str, AvroSchema, Reader]]) -> Reader:  # noqa: C901  each call costs a tenth of an article
    """Reads strings and optional strings itself, as nearly all fields of articles are: a call takes longer than the rest."""
    plan: list[tuple[str, Reader | None, int | None]] = []
    for name, schema, reader in fields:
        is_string = schema == "string" or schema in _OPTIONAL_STRINGS
        null_byte = (
            None if schema == "string" else 2 * (schema == _STRING_OR_NULL)
        )  # the union's branch, as it is written
        plan.append((name, None if is_string else reader, null_byte))
    count, names_bytes = 1 + len(plan), sum(name_bytes(name) for name, *_ in plan)

    def read(payload: bytes, position: int, budget: Budget) -> tuple[dict[str, Any], int]:
        budget.take(count, names_bytes)
        document, size = {}, len(payload)
        for name, other, null_byte in plan:
            if other is not None:
                document[name], position = other(payload, position, budget)
                continue
            length = payload[position]
            if null_byte is not None:
                position += 1
                if length == null_byte:
                    document[name] = None
                    continue
                if length != 2 - null_byte:
                    raise unreadable("Avro", "a union has no such branch")
                length = payload[position]
            if length >= 0x80:
                # Two groups, as of most texts, without a call.
                if (more := payload[position + 1]) < 0x80:
                    length += (more - 1) << 7
                    position += 1
                else:
                    length, position = groups(payload, position)
            position += 1
            end = position + (length >> 1)
            if length & 1 or end > size:
                raise IndexError
            document[name] = payload[position:end].decode()
            position = end
        return document, position

    return read


def _union(branches: Sequence[Reader]) -> Reader:
    count = 2 * len(branches)

    def read(payload: bytes, position: int, budget: Budget) -> tuple[Any, int]:
        index = payload[position]
        if index >= 0x80:
            index, position = groups(payload, position)
        if index & 1 or index >= count:
            raise unreadable("Avro", "a union has no such branch")
        return branches[index >> 1](payload, position + 1, budget)

    return read


def _array(item: Reader) -> Reader:
    def read(payload: bytes, position: int, budget: Budget) -> tuple[list[Any], int]:
        items: list[Any] = []
        while True:
            count, position = _count(payload, position, budget)
            if not count:
                return items, position
            for _ in range(count):
                value, position = item(payload, position, budget)
                items.append(value)

    return read


def _map(item: Reader) -> Reader:
    def read(payload: bytes, position: int, budget: Budget) -> tuple[dict[str, Any], int]:
        entries: dict[str, Any] = {}
        while True:
            count, position = _count(payload, position, budget)
            if not count:
                return entries, position
            for _ in range(count):
                key, position = string(payload, position, budget)
                entries[key], position = item(payload, position, budget)

    return read


def _count(payload: bytes, position: int, budget: Budget) -> tuple[int, int]:
    """Take the items of a block from the budget. A negative count is followed by the block's length, for skipping it."""
    count, position = long(payload, position, budget)
    if count < 0:
        _, position = long(payload, position, budget)
    budget.take(abs(count))
    return abs(count), position


def _enum(symbols: Sequence[str]) -> Reader:
    sizes_bytes = [name_bytes(symbol) for symbol in symbols]

    def read(payload: bytes, position: int, budget: Budget) -> tuple[str, int]:
        index, position = long(payload, position, budget)
        if not 0 <= index < len(symbols):
            raise unreadable("Avro", "an enum has no such symbol")
        budget.take(0, sizes_bytes[index])
        return symbols[index], position

    return read


def _read_as(plain: Reader, kind: str, schema: Mapping[str, Any]) -> Reader:
    """The reader of a primitive or fixed type with what its logical type makes of the value."""
    convert = conversion(kind, schema)
    if convert is None:
        return plain

    def read(payload: bytes, position: int, budget: Budget) -> tuple[Any, int]:
        value, position = plain(payload, position, budget)
        return convert(value), position

    return read


_PRIMITIVES: dict[str, Reader] = {kind: _read_as(plain, kind, {}) for kind, plain in RAW.items()}
"""The readers of types without a logical type."""
