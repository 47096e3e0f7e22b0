"""Converts values of Avro's logical types, bytes and numbers to the types of JSON."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import date
from functools import partial
from typing import Any
from uuid import UUID

from enricher.errors import InvalidArticle
from enricher.worker.articles.formats.decoder_limits import decimal_text, finite, fraction, moment

Convert = Callable[[Any], Any]

_ORDINAL_OF_1970 = date(1970, 1, 1).toordinal()
_SECONDS_OF_A_DAY = 86_400
_NANOS = 1_000_000_000
_UUID_BYTES = 16


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
