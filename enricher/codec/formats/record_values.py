"""A record as the values of our Avro and Protobuf schemas, and back as JSON.

Both schemas have the fields of the JSON Schema, except that values of any type are JSON text: those of `metadata`, and the
whole article.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from enricher.codec.enriched import SCHEMA_VERSION, WrittenEntities, unwritable_metadata, write_entities
from enricher.records import EnrichedRecord, ModelCard


def record_values(record: EnrichedRecord, card: ModelCard) -> dict[str, Any]:
    """The fields of a record, as far as it has them. Raises InvalidArticle where `encode_record` does."""
    article, coverage, entities = record.article, record.coverage, record.entities
    if not isinstance(entities, WrittenEntities):
        entities = write_entities(article, entities)
    values: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "id": article.id,
        **article.metadata,
        "entities": orjson.loads(entities.json),
        "model": {"name": card.name, "digest": card.digest, "precision": card.precision},
        "coverage": {"tokens": coverage.tokens, "windows": coverage.windows, "truncated": coverage.truncated},
    }
    if article.further:
        values["metadata"] = _json_texts(article.further)
    if article.body_separator is not None:
        values["body_separator"] = article.body_separator
    if article.document is not None:
        values["article"] = article.document.decode()
    return values


def _json_texts(values: Mapping[str, Any]) -> dict[str, str]:
    try:
        return {name: orjson.dumps(value).decode() for name, value in values.items()}
    except orjson.JSONEncodeError as error:
        raise unwritable_metadata(error) from None


def json_of(values: Mapping[str, Any]) -> bytes:
    """The record as JSON, with the text of its article unchanged. Raises ValueError if a text in it is not JSON."""
    record = {name: value for name, value in values.items() if value is not None}
    if metadata := record.pop("metadata", None):
        record["metadata"] = {name: _fragment(text) for name, text in metadata.items()}
    if "article" in record:
        record["article"] = _fragment(record["article"])
    return orjson.dumps(record)


def _fragment(text: str) -> orjson.Fragment:
    orjson.loads(text)  # a fragment is written as it is, so it must be valid
    return orjson.Fragment(text)
