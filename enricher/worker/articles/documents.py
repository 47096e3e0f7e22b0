"""Turns the articles of a Python program, mappings or JSON, into the bytes that `reader` reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from enricher.errors import InvalidArticle

Document = Mapping[str, Any] | bytes | str
"""An article as a program has it: a mapping with the types of JSON, or JSON."""


def json_bytes(document: Document) -> bytes:
    """The article as JSON.

    Dates and times in a mapping are written as in ISO 8601, bytes as UTF-8 text. Raises InvalidArticle for a mapping that
    cannot be written, and TypeError for any other type.
    """
    if isinstance(document, bytes):
        return document
    try:
        if isinstance(document, str):
            return document.encode()
        if isinstance(document, Mapping):
            return orjson.dumps(document, default=_plain, option=orjson.OPT_SERIALIZE_NUMPY)
    except (TypeError, UnicodeEncodeError):  # not chained: their messages may contain the article
        reason = (
            "the article cannot be written as JSON: it has other types, or lone surrogates, or is nested too deeply"
        )
    else:
        raise TypeError(f"an article is a mapping, or JSON as bytes or str, not {type(document).__name__}")
    raise InvalidArticle(reason)


def _plain(value: object) -> object:
    """The value in a type that orjson writes. Raises TypeError."""
    if isinstance(value, Mapping):
        return {**value}
    if isinstance(value, bytes):
        return value.decode()
    raise TypeError
