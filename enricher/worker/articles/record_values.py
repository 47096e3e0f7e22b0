"""Enriched records -> their fields in JSON, Avro and Protobuf (`schemas/enriched-record.v1.*`), and back as JSON.

Avro and Protobuf have the fields of the JSON Schema, except that values of any type are JSON text: those of `metadata`, and
the whole article. `record_formats` makes bytes of them; `encoder` makes headers, and handles records that are too large.
`as_line` is for files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, overload

import orjson

from enricher.errors import InvalidArticle
from enricher.worker.heads import KINDS, kind_of_field, kinds_in_records, principal
from enricher.worker.records import (
    Article,
    Coverage,
    EnrichedRecord,
    Entity,
    ModelCard,
    TaskReport,
    TransformCard,
    hot_record,
)

SCHEMA_VERSION = 1

MAX_DOCUMENT_LEVELS = 500
"""Levels of arrays and objects in a document that a record contains: half of what Jackson and Python's json read."""

_PARSED_LEVELS = 1024  # orjson reads no more


def encode_record(record: EnrichedRecord) -> bytes:
    """The record as one compact JSON object in UTF-8, with everything that was read with its article. Deterministic.

    A whole article is repeated byte by byte, so numbers stay as they were written, and there may be line breaks in it.
    Raises InvalidArticle, of stage `publish`, if a vector cannot be written.
    """
    return orjson.dumps(record_fields(record))


def record_fields(record: EnrichedRecord) -> dict[str, Any]:
    """The fields that a record has, in every format, with values for JSON.

    Values that are JSON already are an `orjson.Fragment`. Avro and Protobuf need other values for some fields
    (`record_values`).
    """
    article, entities = record.article, record.entities
    written = orjson.Fragment(entities.json) if isinstance(entities, WrittenEntities) else _check(article, entities)
    fields: dict[str, Any] = {"schema_version": SCHEMA_VERSION, "id": article.id, **article.metadata}
    if article.further:
        fields["metadata"] = orjson.Fragment(article.further)
    if article.body_separator is not None:
        fields["body_separator"] = article.body_separator
    if article.source_map is not None:
        fields["body_format"] = "html"
    if article.version is not None:
        fields["version"] = article.version
    if article.dropped:
        fields["dropped_fields"] = list(article.dropped)
    fields["entities"] = written
    fields |= _origin_values(record)
    if names_tasks(record):
        for kind in kinds_in_records(kinds_of(record.tasks)):
            fields[kind.listed_in] = kind.as_json(record.findings.get(kind.listed_in, ()))
        fields["tasks"] = [_task_values(report) for report in record.tasks]
    if article.document is not None:
        fields["article"] = orjson.Fragment(article.document)
    return fields


def record_values(record: EnrichedRecord) -> dict[str, Any]:
    """The fields that a record has. Raises InvalidArticle as `encode_record` does."""
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


def names_tasks(record: EnrichedRecord) -> bool:
    """False for a worker without tasks in its settings, whose records do not list tasks."""
    return record.tasks[0].task.named


def kinds_of(tasks: Sequence[TaskReport]) -> set[str]:
    """The kinds of a record's tasks."""
    return {report.task.kind for report in tasks}


def _origin_values(record: EnrichedRecord) -> dict[str, Any]:
    """How the record was made."""
    values: dict[str, Any] = {
        "model": _model_values(principal(record.tasks).task.model),
        "coverage": _coverage_values(record.coverage),
    }
    if record.transforms:
        values["transforms"] = [asdict(each) for each in record.transforms]
    if record.catalogue:
        values["catalogue"] = asdict(record.catalogue)
    return values


def _model_values(card: ModelCard) -> dict[str, Any]:
    return {"name": card.name, "digest": card.digest, "precision": card.precision}


def _coverage_values(coverage: Coverage) -> dict[str, Any]:
    return {"tokens": coverage.tokens, "windows": coverage.windows, "truncated": coverage.truncated}


def _task_values(report: TaskReport) -> dict[str, Any]:
    task, coverage = report.task, report.coverage
    pooling = {} if task.pooling is None else {"pooling": task.pooling}
    covered = None if coverage is None else _coverage_values(coverage)
    return {"name": task.name, "kind": task.kind, "model": _model_values(task.model), **pooling, "coverage": covered}


def json_of(values: Mapping[str, Any]) -> bytes:
    """The record as JSON, with the text of its article unchanged. Raises ValueError if a text in it is not JSON."""
    record = _without_nulls(values)
    if "version" in record:
        record["version"] = int(record["version"])  # Protobuf's JSON has 64-bit numbers as text
    tasks = [_without_nulls(each) for each in record.get("tasks", ())]
    # Without ids, Protobuf has an empty list.
    record["entities"] = [
        {name: value for name, value in each.items() if value is not None and (value or name != "ids")}
        for each in record["entities"]
    ]
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
    for name in ("dropped_fields", "transforms"):
        if not record.get(name):
            record.pop(name, None)
    if "article" in record:
        record["article"] = _fragment(record["article"])
    return orjson.dumps(record, option=orjson.OPT_SERIALIZE_NUMPY)


def _without_nulls(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _fragment(text: str) -> orjson.Fragment:
    orjson.loads(text)  # a fragment is written as it is, so it must be valid
    return orjson.Fragment(text)


@hot_record(eq=False)
class WrittenEntities(Sequence[Entity]):
    """Entities as the JSON of their record, which is parsed again when they are accessed.

    While finished records wait for their transaction, bytes take less memory, and the garbage collector, which stops all
    threads, visits one object instead of hundreds.
    """

    json: bytes
    length: int

    def __len__(self) -> int:
        return self.length

    def __iter__(self) -> Iterator[Entity]:
        return iter(orjson.loads(self.json))

    @overload
    def __getitem__(self, index: int) -> Entity: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Entity]: ...
    def __getitem__(self, index: int | slice) -> Entity | Sequence[Entity]:
        return list(self)[index]


def write_entities(article: Article, entities: Sequence[Entity]) -> WrittenEntities:
    """Serialise the entities of `article`; cheapest right after decoding, while they are in the processor's caches."""
    return WrittenEntities(orjson.dumps(_check(article, entities)), len(entities))


def _check(article: Article, entities: Sequence[Entity]) -> Sequence[Entity]:
    """Check each entity and return them all. Every entity passes here once before it is serialised."""
    texts = {"title": article.title, "body": article.body}
    for entity in entities:
        start, end, text = entity["start"], entity["end"], entity["text"]
        assert 0 <= start < end, "an entity has at least one character"
        if article.source_map is not None and entity["field"] == "body":
            start, end = article.source_map.text_range(start, end)
        assert texts[entity["field"]][start:end] == text, "offsets count in their field, and the text is what is there"
        assert 0.0 <= entity["score"] <= 1.0, "a score is a probability, never NaN"
    return entities


def serialise_findings(record: EnrichedRecord, transforms: Sequence[TransformCard] = ()) -> EnrichedRecord:
    """The record with its entities serialised, and with its other findings in the compact form of their kinds.

    `transforms`: the team's own functions that the worker calls.
    """
    findings = record.findings
    if findings:
        findings = {field: kind_of_field(field).compact(each) for field, each in findings.items()}
    entities = write_entities(record.article, record.entities)
    # Not `replace`, which takes several times as long.
    return EnrichedRecord(
        record.article,
        entities,
        record.coverage,
        record.tasks,
        findings,
        record.labels,
        transforms,
        record.catalogue,
    )


def without_repeats(article: Article) -> Article:
    """The article without the parts that its record would repeat; the id and the separator, which offsets need, stay."""
    return replace(article, metadata={}, further=None, document=None)


def limit_levels(document: bytes) -> bytes:
    """The document. Raises InvalidArticle if it has more than `MAX_DOCUMENT_LEVELS` levels: consumers could not parse it.

    `encode_record` does not check this, because a hostile document takes 0.15 s per megabyte, and a transaction may contain
    hundreds of megabytes.
    """
    if document.count(b"[") + document.count(b"{") > MAX_DOCUMENT_LEVELS:
        surplus = _PARSED_LEVELS - MAX_DOCUMENT_LEVELS
        try:
            orjson.loads(b"".join((b"[" * surplus, document, b"]" * surplus)))
        except orjson.JSONDecodeError:
            reason = f"the document has more than {MAX_DOCUMENT_LEVELS} levels, too many for output.article=whole"
        else:
            return document
        raise InvalidArticle(reason)  # not chained: the parser's error contains the document
    return document


def as_line(record: bytes) -> bytes:
    """The record as one line, with its line end. JSON strings contain no line breaks, so all of them are between tokens."""
    if b"\n" in record or b"\r" in record:
        record = record.replace(b"\n", b" ").replace(b"\r", b" ")
    return record + b"\n"
