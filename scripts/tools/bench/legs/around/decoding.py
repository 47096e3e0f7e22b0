"""The same articles in Avro, to measure reading them beside JSON."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any, NamedTuple

import fastavro

from enricher.worker.articles.formats import compile_schema
from enricher.worker.articles.schemas import Decoder, Decoders, Schema, SchemaRef

_PREFIX = b"\x00\x00\x00\x00\x07"
_REQUIRED = ("id", "title", "body")
_OPTIONAL = ("language", "source", "url", "published_at", "license")
"""With the required ones, all that the samples have."""


class AvroCase(NamedTuple):
    """How an article is written, behind Confluent's prefix, and what its reader finds the schema in."""

    write: Callable[[Mapping[str, Any]], bytes]
    decoders: Decoders


def avro_case() -> AvroCase:
    """Articles in Avro; their reader is an `ArticleReader` with these decoders. Aim: at most twice the cost of JSON."""
    fields: list[dict[str, Any]] = [{"name": name, "type": "string"} for name in _REQUIRED]
    fields += [{"name": name, "type": ["null", "string"]} for name in _OPTIONAL]
    schema = {"type": "record", "name": "Article", "fields": fields}
    parsed = fastavro.parse_schema(schema)

    def write(document: Mapping[str, Any]) -> bytes:
        assert set(document) <= {*_REQUIRED, *_OPTIONAL}, "Avro has the same article as JSON"
        out = BytesIO()
        fastavro.schemaless_writer(out, parsed, document)
        return _PREFIX + out.getvalue()

    return AvroCase(write, _OneSchema(compile_schema(Schema("AVRO", json.dumps(schema)))))


class _OneSchema:
    def __init__(self, decode: Decoder) -> None:
        self._decode = decode

    def decoder(self, reference: SchemaRef) -> Decoder:
        assert reference == SchemaRef("id", "7")
        return self._decode
