"""Schemas of inputs: how a record names its schema, what a registry says of it, who decodes payloads, and the bounds.

The decoders themselves are in `formats`, which share these bounds, errors and texts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from math import isfinite
from typing import Any, Literal, NamedTuple, Protocol

import orjson

from enricher.errors import InvalidArticle
from enricher.worker.contracts import SchemaType

Document = Any
"""The content of a payload, with the types of JSON: dictionaries, lists, text, numbers, booleans, None."""

Decoder = Callable[[bytes], Document]
"""Turns a payload, without its frame, into its document. Raises only InvalidArticle; memory and time are bounded."""

MAX_MESSAGES = 5_000
"""Messages in all files of a Protobuf schema."""

_DECODER_BYTES = 10_000
_AVRO_FACTOR = 25
"""The most bytes of a decoder for each character of its schema: fields, symbols and types of one character each."""
_PROTOBUF_FACTOR = 70
"""The same for Protobuf, where the worst are values of an enum; `protobuf_schema` bounds their full names."""
_MESSAGE_BYTES = 3_000
"""The size of a class in Python, which Protobuf needs for each message."""

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
"""Further values for each byte of the payload: items may take no bytes at all, but they take time and memory."""

NAME_BYTES_PER_VALUE = 32
"""Bytes in JSON, on average, of names from the schema: those of fields and of symbols of enums.

A document repeats such a name for each of its items, though an item may take few bytes.
"""

MAX_NUMBER_BYTES = 64
"""The most bytes of a decimal, 154 digits. The time to write it as text grows with the square of its length."""

_REASON_CHARS = 200
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  the zone is a suffix of the text


class SchemaRef(NamedTuple):
    """How a record names its schema: by its number or its GUID, in lower case."""

    kind: Literal["id", "guid"]
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class NamedSchema(NamedTuple):
    """A schema that another one refers to by this name, such as a file of Protobuf."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as a registry keeps it, with all schemas that it refers to, directly or not, dependencies first."""

    type: SchemaType
    text: str
    references: tuple[NamedSchema, ...] = ()

    @property
    def decoder_bytes(self) -> int:
        """The most memory that its decoder takes, as measured with hostile schemas; ordinary ones take less."""
        texts = [self.text, *(each.text for each in self.references)]
        chars = sum(map(len, texts))
        if self.type == "AVRO":
            return _DECODER_BYTES + _AVRO_FACTOR * chars
        if self.type == "PROTOBUF":
            messages = min(MAX_MESSAGES, sum(map(_most_messages, texts)))
            return _DECODER_BYTES + _PROTOBUF_FACTOR * chars + _MESSAGE_BYTES * messages
        return _DECODER_BYTES


def _most_messages(text: str) -> int:
    """At least as many messages as a text of Protobuf declares. In a descriptor one takes 5 bytes, which are 7 in base64."""
    return text.count("{") + text.count("map") if "{" in text else len(text) // 7


Compile = Callable[[Schema], Decoder]
"""Makes the decoder of a schema's payloads. Blocks; raises InvalidArticle if the schema cannot be used."""


class Decoders(Protocol):
    """Decoders by the names of their schemas."""

    def decoder(self, reference: SchemaRef) -> Decoder:
        """The decoder for this schema. Does not block.

        Raises SchemaPending if the schema is not here yet; then it is being fetched. Raises InvalidArticle if there is no
        such schema, or if it cannot be used.
        """


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
