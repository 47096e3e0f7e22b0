"""Functions that read Avro's types, one for each type of a schema, and convert logical types, bytes and numbers for JSON.

No memory is reserved because a length or a count claims it: text and bytes are cut from the payload, and items are counted
before the first one is read.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from functools import partial
from struct import Struct
from typing import Any
from uuid import UUID

from enricher.errors import InvalidArticle
from enricher.worker.articles.schemas import (
    MAX_LEVELS,
    Budget,
    decimal_text,
    finite,
    fraction,
    moment,
    name_bytes,
    unreadable,
)

Convert = Callable[[Any], Any]

_ORDINAL_OF_1970 = date(1970, 1, 1).toordinal()
_SECONDS_OF_A_DAY = 86_400
_NANOS = 1_000_000_000
_UUID_BYTES = 16

Reader = Callable[[bytes, int, Budget], tuple[Any, int]]
"""Reads a value: (payload, position, budget) -> (value, position behind it). Raises IndexError or `struct.error` if the
payload ends too early."""

AvroSchema = Any
"""A schema as parsed JSON: a name, a list (union) or a dictionary."""

_MAX_LONG_BYTES = 10
_FLOAT, _DOUBLE = Struct("<f"), Struct("<d")
_STRING_OR_NULL = ["string", "null"]
_OPTIONAL_STRINGS = (["null", "string"], _STRING_OR_NULL)


class Readers:
    """Makes the readers of one schema. Types with the same name, or of the same parts, share a reader.

    `named`: parsed types by their names.
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
                return _read_as(_RAW[kind], kind, schema)

    def _reader_by_name(self, schema: AvroSchema) -> Reader:
        kind = schema["type"]
        if kind == "record":
            return _record([(each["name"], each["type"], self.reader(each["type"])) for each in schema["fields"]])
        return _enum(schema["symbols"]) if kind == "enum" else _read_as(_fixed_reader(schema["size"]), kind, schema)

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


def conversion(kind: str, schema: Mapping[str, Any]) -> Convert | None:
    """The function that converts a value of a primitive or fixed type for JSON; None if it needs no conversion.

    Unknown logical types are ignored.
    """
    logical_type = schema.get("logicalType")
    if kind in {"float", "double"}:
        return finite
    if kind in {"int", "long"}:
        return _TIMES.get((kind, logical_type))
    if kind == "fixed" and logical_type == "uuid" and schema["size"] == _UUID_BYTES:
        return _uuid
    if kind in {"bytes", "fixed"}:
        scale = schema.get("scale", 0)
        return partial(decimal_text, scale=scale) if logical_type == "decimal" and type(scale) is int else _base64
    return None


def _base64(data: bytes) -> str:
    return b64encode(data).decode()


def _uuid(data: bytes) -> str:
    return str(UUID(bytes=data))


def _date(days: int) -> str:
    try:
        return date.fromordinal(days + _ORDINAL_OF_1970).isoformat()
    except (ValueError, OverflowError):
        raise InvalidArticle("a date is outside of the years 1 to 9999") from None


def _timestamp(per_second: int, zone: str) -> Convert:
    def text(ticks: int) -> str:
        seconds, rest = divmod(ticks, per_second)
        return moment(seconds, rest * (_NANOS // per_second), zone=zone)

    return text


def _time(per_second: int) -> Convert:
    def text(ticks: int) -> str:
        seconds, rest = divmod(ticks, per_second)
        if not 0 <= seconds < _SECONDS_OF_A_DAY:
            raise InvalidArticle("a time of day is outside of 24 hours")
        nanos = rest * (_NANOS // per_second)
        return f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}{fraction(nanos)}"

    return text


_TIMES: dict[tuple[str, object], Convert] = {
    ("int", "date"): _date,
    ("int", "time-millis"): _time(1_000),
    ("long", "time-micros"): _time(1_000_000),
    ("long", "timestamp-millis"): _timestamp(1_000, "Z"),
    ("long", "timestamp-micros"): _timestamp(1_000_000, "Z"),
    ("long", "timestamp-nanos"): _timestamp(_NANOS, "Z"),
    ("long", "local-timestamp-millis"): _timestamp(1_000, ""),
    ("long", "local-timestamp-micros"): _timestamp(1_000_000, ""),
    ("long", "local-timestamp-nanos"): _timestamp(_NANOS, ""),
}


def _record(fields: Sequence[tuple[str, AvroSchema, Reader]]) -> Reader:  # noqa: C901  each call costs a tenth of an article
    """The reader of a record. It reads strings and optional strings itself, as most fields are, because calls are slow."""
    plan: list[tuple[str, Reader | None, int | None]] = []
    """The fields: name, reader (None for a string), and for an optional string its first byte if it is null."""
    for name, schema, reader in fields:
        is_string = schema == "string" or schema in _OPTIONAL_STRINGS
        # A union begins with the number of its branch, and a number is written doubled, because its lowest bit is the sign.
        null_byte = None if schema == "string" else 2 * (schema == _STRING_OR_NULL)
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
            # So are lengths, which is why they are halved below.
            if length >= 0x80:
                # Most such texts have a length of two groups, which is read without a call.
                if (more := payload[position + 1]) < 0x80:
                    length += (more - 1) << 7
                    position += 1
                else:
                    length, position = _groups(payload, position)
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
            index, position = _groups(payload, position)
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
                key, position = _string(payload, position, budget)
                entries[key], position = item(payload, position, budget)

    return read


def _count(payload: bytes, position: int, budget: Budget) -> tuple[int, int]:
    """Take the items of a block from the budget. A negative count is followed by the block's length, for skipping it."""
    count, position = _long(payload, position, budget)
    if count < 0:
        _, position = _long(payload, position, budget)
    budget.take(abs(count))
    return abs(count), position


def _enum(symbols: Sequence[str]) -> Reader:
    sizes_bytes = [name_bytes(symbol) for symbol in symbols]

    def read(payload: bytes, position: int, budget: Budget) -> tuple[str, int]:
        index, position = _long(payload, position, budget)
        if not 0 <= index < len(symbols):
            raise unreadable("Avro", "an enum has no such symbol")
        budget.take(0, sizes_bytes[index])
        return symbols[index], position

    return read


def _read_as(plain: Reader, kind: str, schema: Mapping[str, Any]) -> Reader:
    """The reader of a primitive or fixed type, which converts values of a logical type."""
    convert = conversion(kind, schema)
    if convert is None:
        return plain

    def read(payload: bytes, position: int, budget: Budget) -> tuple[Any, int]:
        value, position = plain(payload, position, budget)
        return convert(value), position

    return read


def _fixed_reader(size: int) -> Reader:
    def read(payload: bytes, position: int, _: Budget) -> tuple[bytes, int]:
        data = payload[position : position + size]
        if len(data) != size:
            raise IndexError
        return data, position + size

    return read


def _null(_payload: bytes, position: int, _: Budget) -> tuple[None, int]:
    return None, position


def _boolean(payload: bytes, position: int, _: Budget) -> tuple[bool, int]:
    return payload[position] != 0, position + 1


def _long(payload: bytes, position: int, _: Budget) -> tuple[int, int]:
    """Groups of seven bits, the lowest first; the lowest bit is the sign."""
    number = payload[position]
    if number >= 0x80:
        number, position = _groups(payload, position)
    return (number >> 1) ^ -(number & 1), position + 1


def _groups(payload: bytes, position: int) -> tuple[int, int]:
    """A number of several groups, with its sign as the lowest bit, and the position of its last byte."""
    number = payload[position] & 0x7F
    for shift in range(7, 7 * _MAX_LONG_BYTES, 7):
        position += 1
        byte = payload[position]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            if number >> 64:
                break
            return number, position
    raise unreadable("Avro", "a number has more than 64 bits")


def _bytes(payload: bytes, position: int, _: Budget) -> tuple[bytes, int]:
    length = payload[position]
    if length >= 0x80:
        length, position = _groups(payload, position)
    if length & 1:
        raise unreadable("Avro", "a length is negative")
    position += 1
    end = position + (length >> 1)
    if end > len(payload):
        raise IndexError
    return payload[position:end], end


def _string(payload: bytes, position: int, budget: Budget) -> tuple[str, int]:
    data, position = _bytes(payload, position, budget)
    return data.decode(), position


def _float(payload: bytes, position: int, _: Budget) -> tuple[float, int]:
    return _FLOAT.unpack_from(payload, position)[0], position + 4


def _double(payload: bytes, position: int, _: Budget) -> tuple[float, int]:
    return _DOUBLE.unpack_from(payload, position)[0], position + 8


_RAW: dict[str, Reader] = {
    "null": _null, "boolean": _boolean, "int": _long, "long": _long,
    "float": _float, "double": _double, "bytes": _bytes, "string": _string,
}  # fmt: skip
_PRIMITIVES: dict[str, Reader] = {kind: _read_as(plain, kind, {}) for kind, plain in _RAW.items()}
"""The readers of types without a logical type."""
