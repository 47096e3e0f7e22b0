"""A record as the values of our Avro and Protobuf schemas, and back as JSON.

Both schemas have the fields of the JSON Schema, except that values of any type are JSON text: those of `metadata`, and the
whole article.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson

from enricher.worker.articles.embeddings import embedding_values, write_embeddings
from enricher.worker.articles.enriched import WrittenEntities, record_fields, write_entities
from enricher.worker.records import EnrichedRecord, ModelCard


def record_values(record: EnrichedRecord, card: ModelCard) -> dict[str, Any]:
    """The fields of a record, as far as it has them. Raises InvalidArticle where `encode_record` does."""
    article, entities = record.article, record.entities
    if not isinstance(entities, WrittenEntities):
        entities = write_entities(article, entities)
    values = record_fields(record, card)
    values["entities"] = orjson.loads(entities.json)
    if record.tasks:
        values["embeddings"] = embedding_values(write_embeddings(record.embeddings))
    if article.further:
        further = orjson.loads(article.further)
        values["metadata"] = {name: orjson.dumps(value).decode() for name, value in further.items()}
    if article.document is not None:
        values["article"] = article.document.decode()
    return values


def json_of(values: Mapping[str, Any]) -> bytes:
    """The record as JSON, with the text of its article unchanged. Raises ValueError if a text in it is not JSON."""
    record = _without_nulls(values)
    for name in ("entities", "classifications", "embeddings", "tasks"):
        if name in record:
            record[name] = [_without_nulls(each) for each in record[name]]
    if record.get("tasks"):
        record |= {name: record.get(name, []) for name in ("classifications", "embeddings")}
        record["embeddings"] = [_in_json(each) for each in record["embeddings"]]
        record["tasks"] = [each | {"coverage": each.get("coverage")} for each in record["tasks"]]
    else:
        for name in ("classifications", "embeddings", "tasks"):  # Protobuf cannot tell an empty list from none
            record.pop(name, None)
    if metadata := record.pop("metadata", None):
        record["metadata"] = {name: _fragment(text) for name, text in metadata.items()}
    if "article" in record:
        record["article"] = _fragment(record["article"])
    return orjson.dumps(record, option=orjson.OPT_SERIALIZE_NUMPY)


def _without_nulls(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _in_json(embedding: Mapping[str, Any]) -> dict[str, Any]:
    """A vector as JSON has it: with the digits of float32, or in base64."""
    values = dict(embedding)
    if isinstance(halves := values.get("vector_float16"), bytes):
        values["vector_float16"] = b64encode(halves).decode()
    vector = values.pop("vector", None)
    # Protobuf cannot tell an empty list from none.
    return values if "vector_float16" in values else values | {"vector": np.array(vector or [], np.float32)}


def _fragment(text: str) -> orjson.Fragment:
    orjson.loads(text)  # a fragment is written as it is, so it must be valid
    return orjson.Fragment(text)
