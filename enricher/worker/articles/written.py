"""Reads written records again, for people and tests: the value of a record in any format that we write -> JSON."""

from __future__ import annotations

from enricher.worker.articles.framing import ID_MAGIC, ID_PREFIX_BYTES
from enricher.worker.articles.record_formats import FORMATS


def record_as_json(value: bytes, content_type: bytes | None) -> bytes:
    """The JSON of a record's value. `content_type`: the header; plain JSON without it.

    Raises ValueError if the value is not a record in that format, and SettingsError if the packages for it are missing.
    """
    if value[:1] != ID_MAGIC:
        return value
    payload = value[ID_PREFIX_BYTES:]
    by_type = (each for each in FORMATS.values() if each.content_type == content_type)
    return next(by_type, FORMATS["json"]).decode(payload)
