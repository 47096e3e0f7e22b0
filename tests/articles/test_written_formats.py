"""`record_writer`: every record in every format says what its JSON says, behind the prefix that consumers expect."""

from __future__ import annotations

import struct
from dataclasses import replace
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.properties import any_text
from support.records import plain_record, records_of_tasks, writer_of

from enricher.errors import SettingsError
from enricher.worker.articles import FORMATS, encode_record, record_as_json, record_writer, serialise_findings
from enricher.worker.contracts import RecordFormat
from enricher.worker.records import Article, Coverage, EnrichedRecord, Entity, SourceMap

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


def test_avro_has_these_bytes(record: EnrichedRecord) -> None:
    """Written out by hand from the specification: union branches, counts and lengths as zigzag numbers."""

    def text(value: str) -> bytes:
        return bytes([2 * len(value.encode())]) + value.encode()

    def found(field: str, start: int, end: int, value: str, score: float) -> bytes:
        return (
            text(field) + bytes([2 * start, 2 * end]) + text(value) + text("LOC") + struct.pack("<d", score) + b"\0" * 6
        )

    expected = (
        PREFIXES["avro"] + b"\x02" + text("a-1") + b"\x02" + text("nb") + b"\0" * 6
        + b"\x04" + found("title", 2, 6, "Oslo", 0.9988) + found("body", 16, 22, "Tromsø", 1.0) + b"\0"
        + text("newswire-minilm") + text("sha256:6a1f0c") + text("int8")
        + b"\x12\x02\0" + b"\0" * 9
    )  # fmt: skip
    assert expected == written(record, "avro")


def test_protobuf_has_these_bytes(record: EnrichedRecord) -> None:
    """Written out by hand from the specification: tags and lengths, and nothing for the number zero."""

    def part(number: int, value: bytes) -> bytes:
        return bytes([number << 3 | 2, len(value)]) + value

    def found(field: str, start: int, end: int, value: str, score: float) -> bytes:
        numbers = bytes([2 << 3, start, 3 << 3, end])
        texts = part(4, value.encode()) + part(5, b"LOC")
        return part(7, part(1, field.encode()) + numbers + texts + bytes([6 << 3 | 1]) + struct.pack("<d", score))

    expected = (
        PREFIXES["protobuf"] + b"\x08\x01" + part(2, b"a-1") + part(3, b"nb")
        + found("title", 2, 6, "Oslo", 0.9988) + found("body", 16, 22, "Tromsø", 1.0)
        + part(8, part(1, b"newswire-minilm") + part(2, b"sha256:6a1f0c") + part(3, b"int8"))
        + part(9, b"\x08\x09\x10\x01")
    )  # fmt: skip
    assert expected == written(record, "protobuf")


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
