"""Enriched records as Avro, by `schemas/enriched-record.v1.avsc`. Imported only if records are written or shown as Avro."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import orjson
from fastavro import parse_schema, schemaless_reader, schemaless_writer

from enricher.worker.articles.formats.record_values import record_values
from enricher.worker.contracts import record_schema
from enricher.worker.records import EnrichedRecord

_SCHEMA = parse_schema(orjson.loads(record_schema("AVRO")))


def encode_avro(record: EnrichedRecord) -> bytes:
    """The record as Avro, without a prefix. Deterministic."""
    buffer = BytesIO()
    # With this notation a tuple names the branch of a union. None of our values is a tuple.
    schemaless_writer(buffer, _SCHEMA, record_values(record), disable_tuple_notation=True)
    return buffer.getvalue()


def decode_avro(payload: bytes) -> dict[str, Any]:
    """The values of a record that was written by the same schema. Raises ValueError if it was not."""
    buffer = BytesIO(payload)
    try:
        values: Any = schemaless_reader(buffer, _SCHEMA, None)
    except Exception as error:  # fastavro raises whatever its C code meets: EOFError, IndexError, OverflowError, ...
        raise ValueError("not a record in Avro") from error
    if buffer.tell() != len(payload) or not isinstance(values, dict):
        raise ValueError("not a record in Avro")
    return values
