"""Reads the optional fields of an article: which values each may have, and what happens to others."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TypeGuard

from enricher.errors import InvalidArticle

METADATA_FIELDS = ("language", "source", "url", "published_at")
"""The fields of an article that its enriched record repeats."""

OPTIONAL_FIELDS = ("title", *METADATA_FIELDS)

MAX_CHARS: Mapping[str, int] = {
    "title": 100_000,
    "language": 256,
    "source": 2_048,
    "url": 8_192,
    "published_at": 256,
}
"""The most characters of each optional field. A tag of BCP 47 has 35 characters; web servers refuse longer URLs."""

_1970 = datetime(1970, 1, 1)  # noqa: DTZ001  without a zone, whose text would be +00:00
_SECONDS_BELOW = 100_000_000_000
"""A smaller number is a time in seconds, until the year 5138; a larger one in milliseconds, from 1973 on."""


def optional_text(name: str, value: object, at: str = "") -> str | None:
    """The text of a field; None if it counts as absent. `at`: where it was found, for messages. Raises InvalidArticle.

    A `published_at` may be a number. One of 0 counts as absent: serializers write it for a time that is not set.
    """
    if name == "published_at" and _is_whole(value):
        return _time_text(int(value), at) if value else None
    if not isinstance(value, str):
        raise InvalidArticle(f"{name} is not a string{at}")
    if len(value) > MAX_CHARS[name]:
        raise InvalidArticle(f"{name} has {len(value)} characters, at most {MAX_CHARS[name]} are allowed")
    return value


def _is_whole(value: object) -> TypeGuard[int | float]:
    """Whether JSON Schema calls a value an integer, as it does 1.0."""
    return type(value) is int or (type(value) is float and value.is_integer())


def _time_text(number: int, at: str) -> str:
    """A time since 1970 as RFC 3339 in UTC, like that of Avro's logical types. Raises InvalidArticle."""
    try:
        time = _1970 + (timedelta(seconds=number) if abs(number) < _SECONDS_BELOW else timedelta(milliseconds=number))
    except OverflowError:
        raise InvalidArticle(f"published_at is outside of the years 1 to 9999{at}") from None
    return time.isoformat(timespec="milliseconds" if time.microsecond else "seconds") + "Z"
