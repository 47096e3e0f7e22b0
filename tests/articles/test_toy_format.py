"""A format is added without a change of the package: a toy that turns JSON around."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import orjson
import pytest
from support.plain_records import plain_record
from support.reading_articles import article_in

from enricher.errors import InvalidArticle
from enricher.worker.articles import (
    FORMATS,
    ArticleReader,
    encode_record,
    record_as_json,
    record_formats,
    record_writer,
)
from enricher.worker.articles.formats import SCHEMA_FORMATS, InputFormat, compile_schema
from enricher.worker.articles.record_formats import Decode, Encode, WrittenFormat
from enricher.worker.articles.schemas import Decoder, Schema
from enricher.worker.contracts import RecordFormat, SchemaType
from enricher.worker.records import Article, Coverage, Partition, RawRecord

TOY = cast("RecordFormat", "toy")
TOY_SCHEMA = cast("SchemaType", "TOY")
RECORD = plain_record(Article("a-1", "", "Oslo"), [], Coverage(1, 1, truncated=False))


def codec() -> tuple[Encode, Decode]:
    """Turns the JSON of records around, and back."""
    return lambda record: encode_record(record)[::-1], lambda payload: payload[::-1]


def compiled(schema: Schema, *, glue: bool) -> Decoder:
    """Reads articles that are turned around."""
    assert (TOY_SCHEMA, False) == (schema.type, glue)
    return lambda payload: cast("dict[str, Any]", orjson.loads(payload[::-1]))


def test_records_of_a_new_format_are_written_and_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its media type, behind the prefix with the number of its schema."""
    monkeypatch.setitem(FORMATS, TOY, WrittenFormat(b"application/toy", TOY_SCHEMA, codec, b"\7"))
    monkeypatch.setattr(record_formats, "record_schema", lambda schema_type: f"the schema of {schema_type}")
    writer = record_writer(TOY)
    assert (b"application/toy", Schema(TOY_SCHEMA, "the schema of TOY")) == (writer.content_type, writer.schema)
    writer.begin_with(5)
    value = writer.write(RECORD)
    assert value.startswith(b"\0\0\0\0\5\7}")
    assert encode_record(RECORD) == record_as_json(value, b"application/toy")


def test_articles_of_a_new_format_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its compiler is asked for the decoder of a schema."""
    monkeypatch.setitem(SCHEMA_FORMATS, TOY_SCHEMA, InputFormat(compiled))
    assert {"id": "a-1"} == compile_schema(Schema(TOY_SCHEMA, "any"))(b'}"1-a":"di"{')


def turned_around(value: bytes, max_value_bytes: int) -> dict[str, Any]:
    """Reads articles that are turned around and name no schema; a dot becomes a lone surrogate, which no JSON has."""
    assert len(value) <= max_value_bytes
    document = cast("dict[str, str]", orjson.loads(value[::-1]))
    return {name: text.replace(".", chr(0xD800)) for name, text in document.items()}


def test_articles_of_a_new_format_without_a_schema_are_read() -> None:
    """The rules for fields, texts and the whole document are those of every format."""
    reader = ArticleReader(max_article_chars=99, max_value_bytes=99, read_plain=turned_around, keep_document=True)
    record = RawRecord(Partition("articles", 0), 0, None, b'{"id": "a-1", "body": "Oslo"}'[::-1])
    article = article_in(reader.read(record))
    assert ("a-1", "Oslo", b'{"id":"a-1","body":"Oslo"}') == (article.id, article.body, article.document)
    with pytest.raises(InvalidArticle, match="body has a lone surrogate"):
        reader.read(replace(record, value=b'{"id": "a-1", "body": "Oslo."}'[::-1]))
