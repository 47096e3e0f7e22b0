"""A record as the values of our Avro and Protobuf schemas, and back as JSON.

Both schemas have the fields of the JSON Schema, except that values of any type are JSON text: those of `metadata`, and the
whole article.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from enricher.worker.articles.enriched import WrittenEntities, kinds_of, names_tasks, record_fields, write_entities
from enricher.worker.heads import KINDS, kinds_in_records
from enricher.worker.records import EnrichedRecord


def record_values(record: EnrichedRecord) -> dict[str, Any]:
    """The fields of a record that it has. Raises InvalidArticle where `encode_record` does."""
    article, entities = record.article, record.entities
    if not isinstance(entities, WrittenEntities):
        entities = write_entities(article, entities)
    values = record_fields(record)
    values["entities"] = orjson.loads(entities.json)
    if names_tasks(record):
        for kind in kinds_in_records(kinds_of(record.tasks)):
            values[kind.listed_in] = kind.as_values(record.findings.get(kind.listed_in, ()))
    if article.further:
        further = orjson.loads(article.further)
        values["metadata"] = {name: orjson.dumps(value).decode() for name, value in further.items()}
    if article.document is not None:
        values["article"] = article.document.decode()
    return values


def json_of(values: Mapping[str, Any]) -> bytes:
    """The record as JSON, with the text of its article unchanged. Raises ValueError if a text in it is not JSON."""
    record = _without_nulls(values)
    if "version" in record:
        record["version"] = int(record["version"])  # Protobuf's JSON has 64-bit numbers as text
    tasks = [_without_nulls(each) for each in record.get("tasks", ())]
    record["entities"] = [_without_nulls(each) for each in record["entities"]]
    present = [*kinds_in_records({each["kind"] for each in tasks})] if tasks else []
    for kind in present:
        listed = [_without_nulls(each) for each in record.get(kind.listed_in, ())]
        record[kind.listed_in] = [kind.value_as_json(each) for each in listed]
    kept = {"entities", *(kind.listed_in for kind in present)}
    for kind in KINDS.values():  # Protobuf cannot tell an empty list from none
        if kind.listed_in not in kept:
            record.pop(kind.listed_in, None)
    if tasks:
        record["tasks"] = [each | {"coverage": each.get("coverage")} for each in tasks]
    else:
        record.pop("tasks", None)
    if metadata := record.pop("metadata", None):
        record["metadata"] = {name: _fragment(text) for name, text in metadata.items()}
    if not record.get("dropped_fields"):
        record.pop("dropped_fields", None)
    if "article" in record:
        record["article"] = _fragment(record["article"])
    return orjson.dumps(record, option=orjson.OPT_SERIALIZE_NUMPY)


def _without_nulls(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _fragment(text: str) -> orjson.Fragment:
    orjson.loads(text)  # a fragment is written as it is, so it must be valid
    return orjson.Fragment(text)
