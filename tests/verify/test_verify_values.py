"""How the verifier reads values: what the worker writes in any format, and nothing that only looks like it."""

from __future__ import annotations

import sys
from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.plain_records import plain_record

from enricher.errors import SettingsError
from enricher.operate.verify import values
from enricher.operate.verify.recomputing import alike
from enricher.operate.verify.values import FORMATS, document_of
from enricher.worker.articles import FORMATS as WRITTEN
from enricher.worker.articles import encode_record, record_writer
from enricher.worker.contracts import RecordFormat
from enricher.worker.records import Article, Coverage, EnrichedRecord, Entity, ModelCard

CARD = ModelCard("newswire-minilm", "sha256:6a1f0c", "int8")
ARTICLE = Article("a-1", "", "Oslo, 1905", {"language": "nb", "url": ""}, further=b'{"desk":{"name":"Politikk"},"n":7}')
ENTITY = Entity(field="body", start=0, end=4, text="Oslo", label="LOC", score=0.9876)
RECORD = plain_record(ARTICLE, (ENTITY,), Coverage(tokens=5, windows=1, truncated=False))
ALL: tuple[RecordFormat, ...] = ("json", "avro", "protobuf", "json-schema")


def written(output_format: RecordFormat, record: EnrichedRecord = RECORD) -> bytes:
    """Write a record as the worker does."""
    writer = record_writer(output_format)
    if writer.schema:
        writer.begin_with(1)
    return writer.write(record)


def test_all_content_types_that_are_written_are_known() -> None:
    """The two lists are written twice on purpose."""
    assert FORMATS == {each.content_type for each in WRITTEN.values()}


@pytest.mark.parametrize("output_format", ALL)
def test_a_record_in_any_format_is_read_as_its_json(output_format: RecordFormat) -> None:
    """The verifier's own reader agrees with the worker's writer, scores included."""
    document = document_of(written(output_format), WRITTEN[output_format].content_type)
    assert orjson.loads(encode_record(RECORD)) == document


@pytest.mark.parametrize("output_format", ALL)
def test_a_record_that_differs_in_one_field_is_not_alike_in_any_format(output_format: RecordFormat) -> None:
    """Otherwise a recomputation would prove nothing for that format."""
    wanted = orjson.loads(encode_record(RECORD))
    others = [
        replace(RECORD, article=replace(ARTICLE, metadata={"language": "nb"})),
        replace(RECORD, article=replace(ARTICLE, further=b'{"desk":{"name":"Politikk"},"n":8}')),
        replace(RECORD, coverage=Coverage(tokens=5, windows=1, truncated=True)),
        replace(RECORD, entities=()),
        replace(RECORD, entities=({**ENTITY, "label": "ORG"},)),
    ]
    for other in others:
        document = document_of(written(output_format, other), WRITTEN[output_format].content_type)
        assert document is not None
        assert not alike(document, wanted)


@pytest.mark.parametrize("output_format", ["avro", "protobuf"])
def test_another_prefix_is_no_record(output_format: RecordFormat) -> None:
    """No prefix, an unknown first byte, another message of the Protobuf schema, bytes behind the end of the record."""
    value, content_type = written(output_format), WRITTEN[output_format].content_type
    for wrong in (
        b"",
        b"\0",
        b"\0\0\0\0",
        value[5:],
        b"\1" + value[1:],
        b"\3" + value[1:],
        value + b"\xff",
        value[:-1],
    ):
        assert document_of(wrong, content_type) is None
    assert document_of(b"\0\0\0\0\1\2" + written("protobuf")[6:], b"application/protobuf") is None


@pytest.mark.parametrize("value", [b"", b"no JSON", b"[]", b"5", b"\0\0\0\0\1[]", b"\0\0\0\0\1", b"\1\0\0\0\1{}"])
def test_what_is_no_object_is_no_record_in_json(value: bytes) -> None:
    """With and without a schema id."""
    assert document_of(value, b"application/json") is None


def test_a_text_that_should_be_json_and_is_not_makes_no_record() -> None:
    """`metadata` and `article` are JSON in a string, and consumers parse them."""
    article = replace(ARTICLE, document=b"{")
    for output_format in ("avro", "protobuf"):
        value = written(output_format, replace(RECORD, article=article))
        assert document_of(value, WRITTEN[output_format].content_type) is None


@given(payload=st.binary(max_size=80), content_type=st.sampled_from([*sorted(FORMATS), None, b"text/plain"]))
def test_any_bytes_are_a_record_or_none(payload: bytes, content_type: bytes | None) -> None:
    """Others may write to the topics that are verified."""
    for value in (payload, b"\0\0\0\0\1" + payload, b"\0\0\0\0\1\0" + payload):
        assert isinstance(document_of(value, content_type), dict | None)


def test_without_the_extra_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that cannot be read for lack of a package is no violation."""
    monkeypatch.setitem(sys.modules, "fastavro", None)
    monkeypatch.setitem(sys.modules, "google.protobuf.descriptor_pb2", None)
    values._avro_reader.cache_clear()
    values._protobuf_reader.cache_clear()
    for output_format in (b"application/avro", b"application/protobuf"):
        with pytest.raises(SettingsError, match=r"pip install 'kafka-enricher\[registry\]'"):
            document_of(b"\0\0\0\0\1\0", output_format)
