"""Reads the values of records in every format. Written from `schemas/`, not from the worker's code.

The headers name the format. Avro, Protobuf and JSON with a schema begin with Confluent's prefix; which schema its number
means, only a registry knows, so records are read by the schemas of this version.
"""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from io import BytesIO
from typing import Any

import orjson

from enricher.distribution import install_command
from enricher.errors import SettingsError
from enricher.worker.contracts import RECORD_MESSAGE, record_descriptors, record_schema

FORMATS = frozenset({b"application/json", b"application/avro", b"application/protobuf"})
"""The content types of records."""

_LISTS = ("classifications", "embeddings", "tasks")
"""The lists that only records of workers with tasks have."""
_REGRESSIONS = "regressions"
"""Listed by records of workers with a task of this kind only."""
_PREFIX_BYTES = 5  # a zero byte and the number of the schema

Document = dict[str, Any]


def document_of(value: bytes, content_type: bytes | None) -> Document | None:
    """The document in the value of a record, as JSON has it; None if it is no record in this format.

    Raises SettingsError if the packages for the format are not installed.
    """
    try:
        if content_type == b"application/json":
            document = orjson.loads(value[_PREFIX_BYTES:] if value[:1] == b"\0" else value)
            return document if isinstance(document, dict) else None
        if len(value) < _PREFIX_BYTES or value[:1] != b"\0":
            return None
        payload = value[_PREFIX_BYTES:]
        if content_type == b"application/avro":
            return _as_json(_avro(payload))
        # A zero byte for the message indexes: the first message of the schema.
        return _as_json(_protobuf(payload[1:])) if payload[:1] == b"\0" else None
    except ValueError:
        return None


def _as_json(record: Document) -> Document:
    """Parse the texts that hold JSON; drop nulls, and the empty lists that Protobuf cannot tell from absent ones.

    Raises ValueError.
    """
    document = _without_nulls(record)
    if "article" in document:
        document["article"] = orjson.loads(document["article"])
    for name in ("entities", *_LISTS, _REGRESSIONS):
        if name in document:
            document[name] = [_without_nulls(each) for each in document[name]]
    if document.get("tasks"):
        document |= {name: document.get(name, []) for name in _LISTS}
        document["tasks"] = [{"coverage": None, **task} for task in document["tasks"]]
        if any(task["kind"] == "regression" for task in document["tasks"]):
            document.setdefault(_REGRESSIONS, [])
        else:
            document.pop(_REGRESSIONS, None)
        document["embeddings"] = [_embedding(each) for each in document["embeddings"]]
    else:
        for name in (*_LISTS, _REGRESSIONS):  # Protobuf cannot tell an empty list from none
            document.pop(name, None)
    if not document.get("dropped_fields"):
        document.pop("dropped_fields", None)  # the same
    metadata = {name: orjson.loads(text) for name, text in document.pop("metadata", {}).items()}
    return document | ({"metadata": metadata} if metadata else {})


def _without_nulls(values: Document) -> Document:
    return {name: value for name, value in values.items() if value is not None}


def _embedding(values: Document) -> Document:
    """A vector as JSON has it: numbers, or base64."""
    if "vector_float16" not in values:
        return values
    numbers = values.get("vector") or None  # Protobuf cannot tell an empty list from none
    return _without_nulls({**values, "vector": numbers, "vector_float16": b64encode(values["vector_float16"]).decode()})


def _avro(payload: bytes) -> Document:
    read, schema = _avro_reader()
    rest = BytesIO(payload)
    try:
        record = read(rest, schema, None)
    except Exception as error:  # fastavro lets through whatever damaged bytes make its code raise
        raise ValueError("not Avro by this schema") from error
    if not isinstance(record, dict) or rest.read(1):
        raise ValueError("not Avro by this schema")
    return record


def _protobuf(payload: bytes) -> Document:
    message_class, decode_error = _protobuf_reader()
    try:
        message = message_class.FromString(payload)
    except decode_error as error:
        raise ValueError("not Protobuf by this schema") from error
    return _plain(message)


def _plain(message: Any) -> Document:  # noqa: ANN401  protobuf publishes no types
    """A message as a dictionary; protobuf's own conversion takes four times as long."""
    plain: Document = {}
    for name, kind in _kinds(message.DESCRIPTOR):
        if kind == "optional" and not message.HasField(name):
            continue
        value = getattr(message, name)
        if kind == "messages":
            value = [_plain(item) for item in value]
        elif kind == "values":
            value = list(value)
        elif kind == "map":
            value = dict(value)
        elif hasattr(value, "DESCRIPTOR"):
            value = _plain(value)
        plain[name] = value
    return plain


@cache
def _kinds(descriptor: Any) -> tuple[tuple[str, str], ...]:  # noqa: ANN401  the same
    """The fields of a message, and how each is read: in words of `_plain`; `optional` may be absent."""
    kinds = []
    for field in descriptor.fields:
        inner = field.message_type
        if field.is_repeated and inner is None:
            kinds.append((field.name, "values"))
        elif field.is_repeated:
            kinds.append((field.name, "map" if inner.GetOptions().map_entry else "messages"))
        else:
            kinds.append((field.name, "optional" if field.has_presence else "plain"))
    return tuple(kinds)


@cache
def _avro_reader() -> tuple[Any, Any]:
    """The function that reads a record, and fastavro's form of the schema."""
    try:
        from fastavro import parse_schema, schemaless_reader  # noqa: PLC0415  a package of an extra
    except ImportError as error:
        raise _missing(error) from error
    return schemaless_reader, parse_schema(orjson.loads(record_schema("AVRO")))


@cache
def _protobuf_reader() -> tuple[Any, type[Exception]]:
    """The class of the message, and the error of a damaged one."""
    try:
        from google.protobuf.descriptor_pb2 import FileDescriptorSet  # noqa: PLC0415  a package of an extra
        from google.protobuf.descriptor_pool import DescriptorPool  # noqa: PLC0415  the same
        from google.protobuf.message import DecodeError  # noqa: PLC0415  the same
        from google.protobuf.message_factory import GetMessageClass  # noqa: PLC0415  the same
    except ImportError as error:
        raise _missing(error) from error
    pool = DescriptorPool()
    for file in FileDescriptorSet.FromString(record_descriptors()).file:
        pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName(RECORD_MESSAGE)), DecodeError


def _missing(error: ImportError) -> SettingsError:
    return SettingsError(f"records in Avro or Protobuf need more packages ({error}): {install_command('registry')}")
