"""Turns the articles of a Python program, mappings or JSON, into the bytes that `reader` reads."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, time
from typing import Any

import numpy as np
import orjson

from enricher.errors import InvalidArticle
from enricher.worker.articles.pointers import is_unicode

Document = Mapping[str, Any] | bytes | str
"""An article as a program has it: a mapping with the types of JSON, or JSON."""

_MOST_LEVELS = 254
"""The most levels that orjson writes. Its fragments would allow more, but corrupt the memory at a thousand (3.13.0)."""
_MOST_NAME_CHARS = 200


def json_bytes(document: Document) -> bytes:
    """The article as JSON.

    Dates and times in a mapping are written as in ISO 8601, bytes as UTF-8 text, the arrays and scalars of NumPy as their
    values; NaN, infinite numbers and times that are not one are null. Raises InvalidArticle, which names the field, for a
    mapping that cannot be written, and TypeError for any other type.
    """
    if isinstance(document, bytes):
        return document
    if isinstance(document, str):
        if not is_unicode(document):
            raise InvalidArticle("the article has a lone surrogate, which is not text")
        return document.encode()
    if not isinstance(document, Mapping):
        raise TypeError(f"an article is a mapping, or JSON as bytes or str, not {type(document).__name__}")
    try:
        # Not orjson's own option for NumPy: it writes a time that is not one, in nanoseconds, as one of 1677.
        return orjson.dumps(document, default=_plain)
    except TypeError:  # it does not say which value; also for some that JSON has
        pass
    return _slowly(document)


def _plain(value: object) -> object:
    """The value in a type that orjson writes. Raises TypeError."""
    if isinstance(value, Mapping):
        return {**value}
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, np.ndarray | np.generic):
        # In nanoseconds, times would become numbers.
        plain = (value.astype("datetime64[us]") if np.issubdtype(value.dtype, np.datetime64) else value).tolist()
        if type(plain) is not type(value):
            return plain
    if isinstance(value, datetime | date | time):
        # The NaT of pandas is a datetime; like NaN, it is not equal to itself.
        return value.isoformat() if value == value else None  # noqa: PLR0124
    if isinstance(value, float):
        return float(value)
    raise TypeError


def _slowly(document: Mapping[str, Any]) -> bytes:
    """Write a mapping value by value. Raises InvalidArticle, which names the value that cannot be written."""
    top: list[Any] = [document]
    todo: list[tuple[Any, Any, str, int]] = [(top, 0, "", 1)]
    while todo:
        holder, name, place, level = todo.pop()
        value = holder[name]
        if isinstance(value, np.ndarray | Mapping):
            value = _plain(value)
        if not isinstance(value, dict | list | tuple):
            holder[name] = _leaf(value, place)
            continue
        if level > _MOST_LEVELS:
            raise InvalidArticle(f"the article has more than {_MOST_LEVELS} levels at {_pointer_text(place)}")
        if isinstance(value, dict) and not all(isinstance(each, str) and is_unicode(each) for each in value):
            raise InvalidArticle(f"{_pointer_text(place)} has a name that is not text")
        inner: Any = {str.__str__(each): value[each] for each in value} if isinstance(value, dict) else [*value]
        holder[name] = inner
        names = inner if isinstance(inner, dict) else range(len(inner))
        todo += [(inner, each, f"{place[:_MOST_NAME_CHARS]}/{each}", level + 1) for each in names]
    return orjson.dumps(top[0])


def _leaf(value: Any, place: str) -> object:  # noqa: ANN401  a caller may pass anything
    """A value that is no list and no mapping, as JSON. Raises InvalidArticle."""
    reason = f"has the type {type(value).__name__}, which JSON does not have"
    try:
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            return float(value)  # as the reader reads it in JSON
        if isinstance(value, time):
            return value.isoformat()  # orjson writes none with a zone
        return orjson.loads(orjson.dumps(value, default=_plain))
    except OverflowError:
        reason = "is a number beyond a double"
    except TypeError:
        if isinstance(value, bytes):
            reason = "has bytes that are not UTF-8"
        elif isinstance(value, str):
            reason = "has a lone surrogate, which is not text"
    raise InvalidArticle(f"{_pointer_text(place)} {reason}")  # not chained: the error may contain the article


def _pointer_text(place: str) -> str:
    """A JSON Pointer for messages. Only its names come from the article."""
    return ascii(place[:_MOST_NAME_CHARS])[1:-1] or "the article"
