"""Which inputs delete an article by `articles.deleted`. Written from `schemas/articles.md`, not from the worker's code.

Only JSON can be read without a registry. Of other values it is unknown whether they are delete events.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from enricher.operate.verify.headers import HeaderValues

_PREFIX_BYTES = 5  # Confluent's: a zero byte and the number of the schema
_MARK = b"\xef\xbb\xbf"
_INDEX = re.compile("0|[1-9][0-9]*", re.ASCII)
_EVENT = b"application/cloudevents+json"


@dataclass(frozen=True, slots=True)
class Deletion:
    """Whether an input deletes an article; None if that is unknown.

    `key`: that of its tombstone if the input has none; None if it is unknown.
    """

    deletes: bool | None
    key: bytes | None = None


NO_DELETION = Deletion(deletes=False)


@dataclass(frozen=True, slots=True)
class DeleteEvents:
    """Documents with one of these values at a JSON Pointer. `id_at`: the pointer of the id; None if it is in no document."""

    field: str
    values: Collection[str | int | bool]
    id_at: str | None

    def deletion(self, value: bytes | None, headers: HeaderValues) -> Deletion:
        """Whether an input with this value deletes an article, and by which key."""
        if value is None:
            return NO_DELETION
        document = _document(value, headers)
        if document is None:
            return Deletion(deletes=None)
        found = _at(document, self.field)
        if not any(type(found) is type(each) and found == each for each in self.values):
            return NO_DELETION
        name = None if self.id_at is None else _at(document, self.id_at)
        if isinstance(name, str):
            return Deletion(deletes=True, key=name.encode())
        # Without an id, the event of CloudEvents may have one.
        return Deletion(deletes=True, key=orjson.dumps(name) if isinstance(name, int) else None)


def _document(value: bytes, headers: HeaderValues) -> Mapping[str, Any] | None:
    """The JSON object in a value, or in the CloudEvent that it is; None if there is none."""
    text = value[_PREFIX_BYTES:] if value[:1] == b"\0" else value
    try:
        document = orjson.loads(text.removeprefix(_MARK))
    except orjson.JSONDecodeError:
        return None
    media_type = (headers.get("content-type") or b"").partition(b";")[0].strip().lower()
    if media_type == _EVENT and isinstance(document, dict):
        document = document.get("data")
    return document if isinstance(document, dict) else None


def _at(document: Mapping[str, Any], pointer: str) -> Any:  # noqa: ANN401  JSON may be anything
    """The value at a JSON Pointer; None if there is none."""
    value: Any = document
    for part in pointer.split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and _INDEX.fullmatch(name) and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value
