"""`record_writer`: every record in every format says what its JSON says, behind the prefix that consumers expect."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import replace
from typing import Any

import numpy as np
import orjson
import pytest
from confluent_kafka.schema_registry import Schema as RegisteredSchema
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.json_format import ParseDict
from google.protobuf.message_factory import GetMessageClass
from hypothesis import given
from hypothesis import strategies as st
from support.properties import any_text
from support.records import plain_record, record_of_tasks, records_of_tasks, writer_of

from enricher.errors import SettingsError
from enricher.worker.articles import FORMATS, encode_record, record_as_json, record_writer, serialise_findings
from enricher.worker.articles.formats.protobuf_schema import load_files
from enricher.worker.articles.schemas import Schema
from enricher.worker.contracts import RECORD_MESSAGE, RecordFormat, record_schema
from enricher.worker.records import Article, CatalogueCard, Coverage, EnrichedRecord, Entity, SourceMap

REGISTERED: tuple[RecordFormat, ...] = ("avro", "protobuf", "json-schema")
ALL: tuple[RecordFormat, ...] = ("json", *REGISTERED)
SCHEMA_ID = 70_000
PREFIXES = {"avro": b"\0\0\1\x11\x70", "protobuf": b"\0\0\1\x11\x70\0", "json-schema": b"\0\0\1\x11\x70", "json": b""}

texts = any_text(max_size=12)
names = any_text(min_size=1, max_size=12)
anything = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)


@st.composite
def entities_of(draw: st.DrawFn, body: str) -> tuple[Entity, ...]:
    """Draw entities at any place of a text."""
    found = []
    for _ in range(draw(st.integers(0, 3))):
        start = draw(st.integers(0, len(body) - 1))
        end = draw(st.integers(start + 1, len(body)))
        score = draw(st.integers(0, 10_000)) / 10_000
        found.append(Entity(field="body", start=start, end=end, text=body[start:end], label=draw(names), score=score))
    return tuple(found)


def one_to_one(length_chars: int) -> SourceMap:
    """The map of HTML without markup."""
    source_map = SourceMap()
    source_map.add(length_chars, 0, length_chars)
    return source_map


@st.composite
def records(draw: st.DrawFn) -> EnrichedRecord:
    """Draw a record with any of the fields that a record may have."""
    body = draw(any_text(min_size=1, max_size=40))
    fields = st.dictionaries(st.sampled_from(["language", "source", "url", "published_at"]), texts)
    article = Article(
        draw(names),
        draw(texts),
        body,
        draw(fields),
        further=draw(st.none() | st.dictionaries(names, anything, min_size=1, max_size=3).map(orjson.dumps)),
        body_separator=draw(st.none() | texts),
        dropped=draw(st.just(()) | st.lists(names, min_size=1, max_size=3).map(tuple)),
        version=draw(st.none() | st.integers(0, 2**63 - 1)),
        source_map=draw(st.none() | st.just(one_to_one(len(body)))),
    )
    coverage = draw(st.builds(Coverage, st.integers(0, 2**31 - 1), st.integers(0, 10**6), st.booleans()))
    return plain_record(article, draw(entities_of(body)), coverage)


def written(record: EnrichedRecord, output_format: RecordFormat) -> bytes:
    """Write a record as the worker does, with the schema id of these tests."""
    return writer_of(output_format, SCHEMA_ID).write(record)


@given(record=records() | records_of_tasks())
def test_a_record_says_in_every_format_what_its_json_says(record: EnrichedRecord) -> None:
    """Whatever is in it, byte by byte also if its findings were written beforehand; read back by what `tail` reads with."""
    said = orjson.loads(encode_record(record))
    for output_format in ALL:
        value = written(record, output_format)
        assert value.startswith(PREFIXES[output_format]), output_format
        assert written(serialise_findings(record), output_format) == value, output_format
        read = orjson.loads(record_as_json(value, FORMATS[output_format].content_type))
        assert said == read, output_format


def full_record() -> EnrichedRecord:
    """A record with every field that one task gives it, and text in every plane of Unicode."""
    entities = (
        Entity(field="title", start=0, end=4, text="Oslo", label="LOC", score=0.9988),
        Entity(field="body", start=9, end=15, text="Tromsø", label="LOC", score=1.0)
        | {"ids": [{"id": "Q26087", "match": "name"}], "id": "Q26087", "why": "context"},
    )
    metadata = {"language": "nb", "source": "", "url": "https://example.org/\U0001f68b", "published_at": "2026-03-14"}
    further = {"section": "økonomi", "desk": {"name": None, "levels": [1, 2.5, True]}}
    document = b'{"price": 1.50, "body": ["\\ud83d\\ude8b Kari", "x"]}'
    body = "\U0001f68b Kari i Tromsø\n\nمريم في القاهرة \0"
    article = Article("a-1", "Oslo", body, metadata, orjson.dumps(further), "\n\n", document, version=2**63 - 1)
    record = plain_record(article, entities, Coverage(tokens=2**31 - 1, windows=3, truncated=True))
    return replace(record, catalogue=CatalogueCard("sha256:5f", 4_095))


def packed(record: EnrichedRecord) -> dict[str, Any]:
    """The JSON of a record, with its metadata and its article as JSON text, as Avro and Protobuf have them."""
    said: dict[str, Any] = orjson.loads(encode_record(record))
    if record.article.further:
        said["metadata"] = {name: orjson.dumps(value).decode() for name, value in said["metadata"].items()}
    if record.article.document:
        said["article"] = record.article.document.decode()
    return said


def without_nulls(value: Any) -> Any:  # noqa: ANN401  JSON
    """The values that a reader of Avro found, without the fields that a record lacks."""
    if isinstance(value, dict):
        return {name: without_nulls(each) for name, each in value.items() if each is not None}
    return [without_nulls(each) for each in value] if isinstance(value, list) else value


RECORDS = (
    full_record(),
    plain_record(Article("b", "", "x"), (), Coverage(tokens=0, windows=0, truncated=False)),
    record_of_tasks(),
)
PLACE = SerializationContext("entities", MessageField.VALUE)


@pytest.mark.parametrize("record", RECORDS, ids=["all fields", "no more than it must have", "several tasks"])
def test_confluents_deserializers_read_every_format(record: EnrichedRecord) -> None:
    """With our schemas from a registry, as consumers do it: what they find is what the JSON says."""
    registry = SchemaRegistryClient.new_client({"url": "mock://", "ssl.ca.location": False})
    json_schema, avro_schema = (RegisteredSchema(record_schema(kind), kind) for kind in ("JSON", "AVRO"))
    json_id, avro_id = (
        registry.register_schema(f"{each.schema_type}-value", each) for each in (json_schema, avro_schema)
    )
    value = writer_of("json-schema", json_id).write(record)
    read_json: Any = JSONDeserializer(json_schema, schema_registry_client=registry)
    assert orjson.loads(encode_record(record)) == read_json(value, PLACE)
    kind = GetMessageClass(
        load_files(Schema("PROTOBUF", record_schema("PROTOBUF")))[0].FindMessageTypeByName(RECORD_MESSAGE)
    )
    read = ProtobufDeserializer(kind, {"use.deprecated.format": False})
    assert ParseDict(packed(record), kind()) == read(written(record, "protobuf"), PLACE)
    expected = packed(record)
    for each in expected.get("embeddings", ()):
        if "vector" in each:
            each["vector"] = np.array(each["vector"], np.float32).tolist()
        else:
            each["vector_float16"] = b64decode(each["vector_float16"])
    found = AvroDeserializer(registry)(writer_of("avro", avro_id).write(record), PLACE)
    assert expected == without_nulls(found)


def test_a_schema_id_that_the_prefix_cannot_hold_is_refused() -> None:
    """Consumers would look up another schema."""
    for schema_id in (-1, 2**31):
        with pytest.raises(SettingsError, match="schema id"):
            record_writer("avro").begin_with(schema_id)


@pytest.mark.parametrize("output_format", REGISTERED)
def test_nothing_is_written_without_a_schema_id(record: EnrichedRecord, output_format: RecordFormat) -> None:
    """A prefix with a made-up number would name some other schema."""
    with pytest.raises(AssertionError, match="schema id"):
        record_writer(output_format).write(record)


@given(payload=st.binary(max_size=60), output_format=st.sampled_from(["avro", "protobuf"]))
def test_any_bytes_are_read_or_refused(payload: bytes, output_format: RecordFormat) -> None:
    """People look at topics into which others may write."""
    value = b"\0\0\0\0\1\0" + payload
    try:
        read: Any = orjson.loads(record_as_json(value, FORMATS[output_format].content_type))
    except ValueError:
        return
    assert isinstance(read, dict)


@pytest.mark.parametrize(
    "payload",
    [
        b"\x02\x02a" + b"\xff" * 9 + b"\x01",
        b"\x02" + b"\xfe" * 9 + b"\x01",
        b"\x02\x02a\0\0\0\0\0\0\0\xff\xff\xff\xff\x0f",
    ],
)
def test_lengths_beyond_the_value_are_refused(payload: bytes) -> None:
    """A length of gigabytes in ten bytes takes neither memory nor time."""
    with pytest.raises(ValueError, match="Avro"):
        record_as_json(PREFIXES["avro"] + payload, b"application/avro")
    with pytest.raises(ValueError, match="Protobuf"):
        record_as_json(PREFIXES["protobuf"] + b"\x12" + payload[1:], b"application/protobuf")


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only these formats need the packages, so only they ask for them."""
    for module in ("fastavro", "google.protobuf.descriptor_pb2"):
        monkeypatch.setitem(__import__("sys").modules, module, None)
    packed: tuple[RecordFormat, ...] = ("avro", "protobuf")
    for output_format in packed:
        uncached = FORMATS[output_format].codec.__wrapped__  # type: ignore[attr-defined]  # of functools.cache
        monkeypatch.setitem(FORMATS, output_format, replace(FORMATS[output_format], codec=uncached))
    assert record_writer("json").schema is None
    assert record_writer("json-schema").schema is not None
    for output_format in packed:
        with pytest.raises(SettingsError, match=r"pip install 'kafka-enricher\[registry\]'"):
            record_writer(output_format)
