"""Parses the headers of outputs, and the inputs that delete an article by `articles.deleted`.

Written from `schemas/`, not from the worker's code. Of inputs, only JSON can be read without a registry; of other values it
is unknown whether they are delete events.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID, uuid5

import orjson
from confluent_kafka import Message

from enricher.worker.kafka.metadata import headers_of
from enricher.worker.records import Headers

_FORMATS = frozenset({b"application/json", b"application/avro", b"application/protobuf"})
_RECORD_NAMESPACE = UUID("039dac1f-0581-5e81-9377-388d5ac680c4")
_TOPIC_ID = re.compile(rb"[A-Za-z0-9+/_-]{22}")
_DECIMAL = re.compile(rb"0|[1-9][0-9]{0,18}")
_DEAD_LETTER_TEXTS = tuple(
    f"enricher.dlq.{name}" for name in ("error.type", "error.message", "attempts", "version", "time")
)
_ONE_ALPHABET = str.maketrans("+/", "-_")
_VERSION = "enricher.version"
_STAGES = frozenset({b"decode", b"transform", b"tokenize", b"inference", b"publish"})
_STAGE = "enricher.dlq.stage"
"""The first of the headers that a worker adds to a dead letter."""
_VALUE_OMITTED, _KEY_OMITTED = (f"enricher.dlq.{part}.omitted_bytes" for part in ("value", "key"))
_NUMBERS = (_VALUE_OMITTED, _KEY_OMITTED, "enricher.dlq.headers.omitted_bytes", "enricher.dlq.batch.offset")

HeaderValues = Mapping[str, bytes | None]


_PREFIX_BYTES = 5  # Confluent's: a zero byte and the number of the schema
_MARK = b"\xef\xbb\xbf"
_INDEX = re.compile("0|[1-9][0-9]*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Omitted:
    """The parts of its input that a dead letter says it left out: the sizes of value and key; None for a part that it has.

    `unreadable`: the worker could not read the input, so nothing of it is known.
    """

    value_bytes: int | None = None
    key_bytes: int | None = None
    unreadable: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """The input record that an output names. `topic_id`: that of its topic; None for a dead letter that does not name it.

    `record_id`, `version`: those in its headers; None for dead letters, which have none. `omitted`: only of dead letters.
    """

    topic: str
    partition: int
    offset: int
    topic_id: str | None = None
    record_id: str | None = None
    version: int | None = None
    omitted: Omitted = Omitted()


def headers_by_name(message: Message) -> HeaderValues:
    """The headers of an output. If a name occurs more than once, the last one counts."""
    return dict(headers_of(message))


def split_headers(message: Message) -> tuple[Headers, Headers]:
    """The headers of a dead letter: the input's, whatever their names, and those that a worker added behind them."""
    headers = headers_of(message)
    first = max((index for index, (name, _) in enumerate(headers) if name == _STAGE), default=0)
    return headers[:first], headers[first:]


def dead_letter_headers_by_name(message: Message) -> HeaderValues:
    """The headers that a worker added to a dead letter."""
    return dict(split_headers(message)[1])


def record_id(source: Source) -> str:
    """The record id that the schema derives from an input record."""
    name = f"{source.topic}/{source.topic_id}/{source.partition}/{source.offset}"
    return str(uuid5(_RECORD_NAMESPACE, name))


def same_topic(one: str | None, other: str | None) -> bool:
    """False if both ids are known and differ.

    Ids are 16 bytes in base64, of which the client and Kafka's tools write two characters differently: `+/` and `-_`.
    """
    if one is None or other is None or one == other:
        return True
    return one.translate(_ONE_ALPHABET) == other.translate(_ONE_ALPHABET)


def source_of_record(headers: HeaderValues, *, tombstone: bool) -> Source | None:
    """The source that an enriched record (or a tombstone) names; None if the headers break the schema."""
    source = _source(headers, "enricher")
    if (
        source is None
        or source.topic_id is None
        or not headers.get("enricher.record.id")
        or headers.get("enricher.schema.version") != b"2"
        or headers.get("content-type") not in ({None} if tombstone else _FORMATS)
        or not _is_version(headers.get(_VERSION) or b"")
    ):
        return None
    stated = (headers["enricher.record.id"] or b"").decode("ascii", "replace")
    return replace(source, record_id=stated, version=int(headers[_VERSION] or b""))


def _is_version(stated: bytes) -> bool:
    """Whether this is a version of 63 bits."""
    return bool(_DECIMAL.fullmatch(stated)) and int(stated) < 2**63


def source_of_dead_letter(headers: HeaderValues) -> Source | None:
    """The source that a dead letter names; None if the headers break the schema."""
    source = _source(headers, "enricher.dlq")
    if (
        source is None
        or headers.get(_STAGE) not in _STAGES
        or any(headers.get(name) is None for name in _DEAD_LETTER_TEXTS)
        or not all(_DECIMAL.fullmatch(headers[name] or b"") for name in _NUMBERS if name in headers)
    ):
        return None
    value_bytes, key_bytes = headers.get(_VALUE_OMITTED), headers.get(_KEY_OMITTED)
    omitted = Omitted(
        None if value_bytes is None else int(value_bytes),
        None if key_bytes is None else int(key_bytes),
        unreadable="enricher.dlq.batch.offset" in headers,
    )
    return replace(source, omitted=omitted)


def _source(headers: HeaderValues, prefix: str) -> Source | None:
    topic, topic_id = headers.get(f"{prefix}.source.topic"), headers.get(f"{prefix}.source.topic.id")
    partition, offset = headers.get(f"{prefix}.source.partition"), headers.get(f"{prefix}.source.offset")
    if not topic or partition is None or offset is None:
        return None
    if not _DECIMAL.fullmatch(partition) or not _DECIMAL.fullmatch(offset):
        return None
    if topic_id is not None and not _TOPIC_ID.fullmatch(topic_id):
        return None
    identity = None if topic_id is None else topic_id.decode()
    return Source(topic.decode("utf-8", "replace"), int(partition), int(offset), identity)


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

    def deletion(self, value: bytes | None) -> Deletion:
        """Whether an input with this value deletes an article, and by which key."""
        if value is None:
            return NO_DELETION
        document = _document(value)
        if document is None:
            return Deletion(deletes=None)
        found = _at(document, self.field)
        if not any(type(found) is type(each) and found == each for each in self.values):
            return NO_DELETION
        name = None if self.id_at is None else _at(document, self.id_at)
        if isinstance(name, str):
            return Deletion(deletes=True, key=name.encode())
        return Deletion(deletes=True, key=orjson.dumps(name) if isinstance(name, int) else None)


def _document(value: bytes) -> Mapping[str, Any] | None:
    """The JSON object in a value; None if there is none."""
    text = value[_PREFIX_BYTES:] if value[:1] == b"\0" else value
    try:
        document = orjson.loads(text.removeprefix(_MARK))
    except orjson.JSONDecodeError:
        return None
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
