"""Reads from a record of the output topic which version the index should have. For `enricher index verify`.

It shares no rule with the indexer. No version is expected of records from which no document can be made: the indexer writes
them to its dead letters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

import orjson
from confluent_kafka import Message

from enricher.errors import SettingsError
from enricher.worker.articles.record_formats import record_as_json
from enricher.worker.kafka.metadata import headers_of

_MAX_ID_BYTES = 512
_MAX_VERSION = 2**63 - 1
_DIGITS = re.compile(rb"[0-9]{1,19}")


@dataclass(frozen=True, slots=True)
class Wanted:
    """The version of a document that the index should have after one record, or should have deleted."""

    id: str
    version: int
    deleted: bool
    partition: int


def wanted_by(message: Message, identified_by: Literal["key", "id"]) -> Wanted | None:
    """The version that a record asks for; None if no document can be made. `identified_by`: `index.document_id`."""
    headers = dict(headers_of(message))
    digits, value = headers.get("enricher.version") or b"", message.value()
    if not _DIGITS.fullmatch(digits) or (version := int(digits)) > _MAX_VERSION:
        return None
    key = message.key()
    try:
        name = key.decode() if isinstance(key, bytes) else key
        if value is not None and (identified_by == "id" or not name):
            text = value if isinstance(value, bytes) else value.encode()
            name = orjson.loads(record_as_json(text, headers.get("content-type")))["id"]
            if key and name.encode() != (key if isinstance(key, bytes) else key.encode()):
                return None  # no tombstone would delete it
    except SettingsError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    if not isinstance(name, str) or not 0 < len(name.encode()) <= _MAX_ID_BYTES:
        return None
    return Wanted(name, version, deleted=value is None, partition=message.partition() or 0)
