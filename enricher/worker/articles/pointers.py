"""JSON Pointers (RFC 6901), such as `/content/text`, and functions that find their values in documents."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

MISSING: Final = object()
"""The result of a pointer to nothing; null is a value."""

MAX_POINTER_CHARS = 512
"""Far more than a real pointer has, and short enough for the message of a dead letter."""

EACH = "*"
"""Stands for each item of a list in the pointer of a body. Other pointers must not have it."""

Find = Callable[[Any], Any]
"""A function from a document to the value at a pointer, or `MISSING`."""

_WRONG_ESCAPE = re.compile("~(?![01])")
_INDEX = re.compile("0|[1-9][0-9]{0,8}")
"""The index of a list, without leading zeros; no list that fits into memory has more items."""


def parse_pointer(text: str) -> tuple[str, ...]:
    """The names on the way to the value, unescaped. Raises ValueError for a malformed pointer and for the whole document."""
    if not text.startswith("/"):
        raise ValueError(f"{_quote(text)} is not a JSON Pointer: it must begin with a slash, such as /content/text")
    if len(text) > MAX_POINTER_CHARS:
        raise ValueError(f"a JSON Pointer has {len(text)} characters, at most {MAX_POINTER_CHARS} are allowed")
    if not is_unicode(text):
        raise ValueError("a JSON Pointer has a lone surrogate, which is in no document")
    if _WRONG_ESCAPE.search(text):
        raise ValueError(f"{_quote(text)} is not a JSON Pointer: write ~0 for ~, and ~1 for a slash within a name")
    return tuple(part.replace("~1", "/").replace("~0", "~") for part in text[1:].split("/"))


def finder(names: tuple[str, ...]) -> Find:
    """The function that finds the value at these names in a document, which is an object."""
    find = _finder_in_any(names)
    if len(names) != 2:
        return find
    first, second = names

    def find_in(document: Any) -> Any:  # noqa: ANN401  documents are JSON
        """Do what `find` does, in half the time, for the usual case of an object in an object."""
        if type(inner := document.get(first)) is dict:
            return inner.get(second, MISSING)
        return find(document)

    return find_in


def body_finder(names: tuple[str, ...]) -> Find:
    """The function that finds a body: like `finder`; behind a `*`, the values of all items of a list.

    Items without a value, or with null, are left out. Without a list before the `*`, the body is `MISSING`.
    """
    if EACH not in names:
        return finder(names)
    at = names.index(EACH)
    find_list, find_in_items = finder(names[:at]), _finder_in_items(names[at + 1 :])

    def find(document: Any) -> Any:  # noqa: ANN401  documents are JSON
        items = find_list(document)
        return find_in_items(items) if isinstance(items, list) else MISSING

    return find


def _finder_in_items(names: tuple[str, ...]) -> Callable[[list[Any]], list[Any]]:
    """The function that finds the values at these names in the items of a list, without null and `MISSING`."""
    find_in = _finder_in_any(names)

    def find(items: list[Any]) -> list[Any]:
        return [value for value in map(find_in, items) if value is not MISSING and value is not None]

    if len(names) != 1 or _INDEX.fullmatch(names[0]):
        return find
    (name,) = names

    def find_in_objects(items: list[Any]) -> list[Any]:
        """Do what `find` does, in a quarter of the time: a list of 4 MB may have two million items."""
        return [value for item in items if isinstance(item, dict) and (value := item.get(name)) is not None]

    return find_in_objects


def _finder_in_any(names: tuple[str, ...]) -> Find:
    """The function that finds the value at these names in any value."""
    steps = tuple((name, int(name) if _INDEX.fullmatch(name) else None) for name in names)

    def find(value: Any) -> Any:  # noqa: ANN401  documents are JSON
        for name, index in steps:
            if isinstance(value, dict):
                value = value.get(name, MISSING)
            elif index is not None and isinstance(value, list) and index < len(value):
                value = value[index]
            else:
                return MISSING
        return value

    return find


def is_unicode(text: str) -> bool:
    """Whether a text has no lone surrogates, which neither JSON nor UTF-8 can have."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _quote(text: str) -> str:
    return f"'{text}'" if len(text) <= MAX_POINTER_CHARS else f"'{text[:20]}...'"
