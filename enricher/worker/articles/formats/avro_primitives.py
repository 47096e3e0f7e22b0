"""Functions that read Avro's primitive types, as `avro_readers` has them for the others."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any

from enricher.worker.articles.formats.limits import Budget, unreadable

Reader = Callable[[bytes, int, Budget], tuple[Any, int]]
"""Payload, position, budget -> value, position behind it. IndexError and `struct.error`: the payload ends too early."""

_MAX_LONG_BYTES = 10
_FLOAT, _DOUBLE = Struct("<f"), Struct("<d")


def fixed(size: int) -> Reader:
    """The reader of so many bytes."""

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


def long(payload: bytes, position: int, _: Budget) -> tuple[int, int]:
    """Groups of seven bits, the lowest first; the lowest bit is the sign."""
    number = payload[position]
    if number >= 0x80:
        number, position = groups(payload, position)
    return (number >> 1) ^ -(number & 1), position + 1


def groups(payload: bytes, position: int) -> tuple[int, int]:
    """A number of several groups, with its sign as the lowest bit, and where its last byte is."""
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
        length, position = groups(payload, position)
    if length & 1:
        raise unreadable("Avro", "a length is negative")
    position += 1
    end = position + (length >> 1)
    if end > len(payload):
        raise IndexError
    return payload[position:end], end


def string(payload: bytes, position: int, budget: Budget) -> tuple[str, int]:
    """Text; UnicodeDecodeError if it is not UTF-8."""
    data, position = _bytes(payload, position, budget)
    return data.decode(), position


def _float(payload: bytes, position: int, _: Budget) -> tuple[float, int]:
    return _FLOAT.unpack_from(payload, position)[0], position + 4


def _double(payload: bytes, position: int, _: Budget) -> tuple[float, int]:
    return _DOUBLE.unpack_from(payload, position)[0], position + 8


RAW: dict[str, Reader] = {
    "null": _null, "boolean": _boolean, "int": long, "long": long,
    "float": _float, "double": _double, "bytes": _bytes, "string": string,
}  # fmt: skip
