"""The bounds of every format's decoder, and the errors and texts that they share."""

from __future__ import annotations

from datetime import datetime, timedelta
from math import isfinite
from typing import Any

import orjson

from enricher.errors import InvalidArticle

Foreign = Any
"""An object of google.protobuf, which publishes no types: a message, a descriptor, a pool."""

MAX_VALUES = 500_000
"""Values of one document, null and empty ones included; 184 bytes each at worst, as much as hostile JSON of 2 MB takes.

A paragraph, a tag and an annotation for every tenth word of the longest article would be 60,000.
"""

MAX_LEVELS = 100
"""Levels of nested types: Protobuf's own limit."""

FREE_VALUES = 10_000
"""Values that every document may have, however short its payload is: fields that are absent or empty count too."""

VALUES_PER_BYTE = 100
"""Further values for each byte of the payload: items may take no bytes at all, but time and memory."""

NAME_BYTES_PER_VALUE = 32
"""Bytes in JSON, on average, of names from the schema: those of fields and of symbols of enums.

A document repeats such a name for each of its items, though an item may take few bytes.
"""

MAX_NUMBER_BYTES = 64
"""Bytes of a decimal, 154 digits. The time to write one as text grows with the square of its length."""

_REASON_CHARS = 200
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  the zone is a suffix of the text


class Budget:
    """Counts the values and bytes of names that one document may still have, and its levels where a format needs that."""

    __slots__ = ("_left", "_max_values", "_name_bytes_left", "levels")

    def __init__(self, payload_bytes: int) -> None:
        self._left = self._max_values = min(MAX_VALUES, FREE_VALUES + VALUES_PER_BYTE * payload_bytes)
        self._name_bytes_left = NAME_BYTES_PER_VALUE * self._max_values
        self.levels = 0

    def take(self, values: int, name_bytes: int = 0) -> None:
        """Count values before they are made. Raises InvalidArticle if they are too many, or their names too long."""
        self._left -= values
        self._name_bytes_left -= name_bytes
        if self._left < 0:
            raise InvalidArticle(f"value has more than {self._max_values} values, the most for its length")
        if self._name_bytes_left < 0:
            most_bytes = NAME_BYTES_PER_VALUE * self._max_values
            raise InvalidArticle(
                f"value repeats names of its schema in more than {most_bytes} bytes, the most for its length"
            )


def name_bytes(name: str) -> int:
    """The bytes of a name in JSON, with what separates it from the next value."""
    return len(orjson.dumps(name)) + 1


def unusable(format_name: str, reason: object) -> InvalidArticle:
    """The error about a schema. `reason` may contain text of the schema, never of an article."""
    text = " ".join(str(reason).split())
    clipped = text if len(text) <= _REASON_CHARS else text[:_REASON_CHARS] + "..."
    return InvalidArticle(f"the {format_name} schema cannot be used: {clipped}")


def unreadable(format_name: str, reason: str) -> InvalidArticle:
    """The error about a payload. `reason` contains nothing of it."""
    return InvalidArticle(f"value does not follow its {format_name} schema: {reason}")


def finite(number: float) -> float | str:
    """The number, or the text for NaN and infinity as in Protobuf's JSON mapping."""
    if isfinite(number):
        return number
    return "NaN" if number != number else "Infinity" if number > 0 else "-Infinity"  # noqa: PLR0124


def moment(seconds: int, nanos: int, *, zone: str = "Z") -> str:
    """The time since 1970 as RFC 3339, with 0, 3, 6 or 9 decimals. Raises InvalidArticle outside of the years 1 to 9999."""
    try:
        whole = (_EPOCH + timedelta(seconds=seconds)).isoformat()
    except OverflowError:
        raise InvalidArticle("a timestamp is outside of the years 1 to 9999") from None
    return f"{whole}{fraction(nanos)}{zone}"


def fraction(nanos: int) -> str:
    """The decimals of a second, with their point: none, 3, 6 or 9."""
    if not nanos:
        return ""
    digits = f"{nanos:09}"
    if digits.endswith("000000"):
        return "." + digits[:3]
    return "." + (digits[:6] if digits.endswith("000") else digits)


def decimal_text(unscaled: bytes, scale: int) -> str:
    """A decimal: big-endian two's complement without its point, and the number of decimals. Raises InvalidArticle."""
    if len(unscaled) > MAX_NUMBER_BYTES:
        raise InvalidArticle(f"a decimal has {len(unscaled)} bytes, at most {MAX_NUMBER_BYTES} are allowed")
    if abs(scale) > MAX_NUMBER_BYTES * 3:
        raise InvalidArticle(f"a decimal has a scale beyond {MAX_NUMBER_BYTES * 3}")
    number = int.from_bytes(unscaled, "big", signed=True)
    if scale <= 0:
        return str(number * 10**-scale)
    digits = str(abs(number)).zfill(scale + 1)
    return f"{'-' if number < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"
