"""Functions that read Avro's types, one for each type of a schema: payload and position -> value and the position behind it.

Nothing is reserved because a length or a count says so: text and bytes are cut from the payload, and items are counted
before the first one is read. IndexError and `struct.error`: the payload ends too early.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from enricher.codec.formats.avro_primitives import RAW, Reader, fixed, groups, long, string
from enricher.codec.formats.avro_schema import AvroSchema
from enricher.codec.formats.avro_values import Convert, conversion
from enricher.codec.formats.limits import MAX_LEVELS, Budget, unreadable


def reader_of(schema: AvroSchema, named: Mapping[str, AvroSchema], known: dict[str, Reader]) -> Reader:
    """The reader of a parsed schema. `named`: the types that names mean; `known`: their readers, once they were needed."""

    def inner(schema: AvroSchema) -> Reader:
        return reader_of(schema, named, known)

    if isinstance(schema, list):
        return _union([inner(branch) for branch in schema])
    if isinstance(schema, str):
        return _PRIMITIVES.get(schema) or _by_name(schema, named, known)
    match kind := schema["type"]:
        case "array":
            made = _array(inner(schema["items"]))
        case "map":
            made = _map(inner(schema["values"]))
        case "record":
            made = _record([(each["name"], each["type"], inner(each["type"])) for each in schema["fields"]])
        case "enum":
            made = _enum(schema["symbols"])
        case _:
            plain = fixed(schema["size"]) if kind == "fixed" else RAW[kind]
            convert = conversion(kind, schema)
            made = plain if convert is None else _converted(plain, convert)
    return made


def _by_name(name: str, named: Mapping[str, AvroSchema], known: dict[str, Reader]) -> Reader:
    """Of a type that is declared elsewhere, perhaps around this one: found when it is first needed."""
    schema = named[name]

    def read(payload: bytes, position: int, budget: Budget) -> tuple[Any, int]:
        found = known.get(name)
        if found is None:
            found = known[name] = reader_of(schema, named, known)
        budget.levels += 1
        if budget.levels > MAX_LEVELS:
            raise unreadable("Avro", f"more than {MAX_LEVELS} levels")
        value, position = found(payload, position, budget)
        budget.levels -= 1
        return value, position

    return read


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
    count = 1 + len(plan)

    def read(payload: bytes, position: int, budget: Budget) -> tuple[dict[str, Any], int]:
        budget.take(count)
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
    """Of the items of a block, taken from the budget. A negative one is followed by the block's length, as for skipping."""
    count, position = long(payload, position, budget)
    if count < 0:
        _, position = long(payload, position, budget)
    budget.take(abs(count))
    return abs(count), position


def _enum(symbols: Sequence[str]) -> Reader:
    def read(payload: bytes, position: int, budget: Budget) -> tuple[str, int]:
        index, position = long(payload, position, budget)
        if not 0 <= index < len(symbols):
            raise unreadable("Avro", "an enum has no such symbol")
        return symbols[index], position

    return read


def _converted(plain: Reader, convert: Convert) -> Reader:
    def read(payload: bytes, position: int, budget: Budget) -> tuple[Any, int]:
        value, position = plain(payload, position, budget)
        return convert(value), position

    return read


_PRIMITIVES: dict[str, Reader] = {
    kind: plain if (convert := conversion(kind, {})) is None else _converted(plain, convert)
    for kind, plain in RAW.items()
}
"""Of types without a logical type."""
