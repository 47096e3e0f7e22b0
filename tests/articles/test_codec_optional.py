"""Optional fields of articles: times as numbers, and what becomes of an article with a wrong one."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import Any

import fastavro
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.plain_records import plain_record
from support.reading_articles import article_in

from enricher.errors import InvalidArticle
from enricher.operate.verify.values import document_of
from enricher.worker.articles import ArticleReader, FieldMapping, encode_record, record_as_json, record_writer
from enricher.worker.articles.formats import compile_schema
from enricher.worker.articles.mapping import MAX_CHARS, OPTIONAL_FIELDS, optional_text
from enricher.worker.articles.schemas import Schema
from enricher.worker.build.article_readers import line_reader
from enricher.worker.commands.progress import describe
from enricher.worker.contracts import RecordFormat
from enricher.worker.records import Article, Coverage, Partition, RawRecord
from enricher.worker.settings import Settings, given_settings
from enricher.worker.stats.counters import Counters

USUAL = {"id": "a-1", "title": "Rain", "body": "Oslo"}
MAPPED = {name: f"/deep/{name}" for name in OPTIONAL_FIELDS}


def read(document: dict[str, Any], mapping: FieldMapping) -> Article:
    """The article in a document."""
    reader = ArticleReader(max_article_chars=1_000, max_value_bytes=1_000_000, mapping=mapping)
    return article_in(reader.read(RawRecord(Partition("t", 0), 0, None, json.dumps(document).encode())))


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (1_773_482_400, "2026-03-14T10:00:00Z"),
        (1_773_482_400.0, "2026-03-14T10:00:00Z"),
        (1_773_482_400_000, "2026-03-14T10:00:00Z"),
        (1_773_482_400_123, "2026-03-14T10:00:00.123Z"),
        (99_999_999_999, "5138-11-16T09:46:39Z"),
        (100_000_000_000, "1973-03-03T09:46:40Z"),
        (-1, "1969-12-31T23:59:59Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (-62_135_596_800_000, "0001-01-01T00:00:00Z"),
    ],
)
def test_a_number_is_a_time_in_seconds_or_milliseconds(number: float, text: str) -> None:
    """By its size, at both ends of each."""
    assert text == optional_text("published_at", number)


@given(st.datetimes(datetime(1973, 3, 4), datetime(5138, 11, 16)))  # noqa: DTZ001  the strategy adds none
def test_seconds_and_milliseconds_of_one_moment_are_one_time(moment: datetime) -> None:
    """Whatever the publisher's library writes."""
    seconds = int(moment.replace(tzinfo=UTC).timestamp())
    assert optional_text("published_at", seconds) == optional_text("published_at", seconds * 1_000)


def test_zero_is_no_time() -> None:
    """Protobuf, and many publishers, write it for a time that is not set."""
    for mapping in (FieldMapping(), FieldMapping(MAPPED)):
        found = read(USUAL | {"published_at": 0, "deep": {"title": "Rain", "published_at": 0.0}}, mapping)
        assert Article("a-1", "Rain", "Oslo") == found


@pytest.mark.parametrize("number", [253_402_300_800_000, -62_135_596_800_001, 10**30, 1e300])
def test_a_time_outside_of_the_calendar_is_wrong(number: float) -> None:
    """Nanoseconds, for instance."""
    with pytest.raises(InvalidArticle, match=r"^published_at is outside of the years 1 to 9999 at /x$"):
        optional_text("published_at", number, " at /x")


@pytest.mark.parametrize("name", OPTIONAL_FIELDS)
@pytest.mark.parametrize("wrong", [True, 1.5, [], {}, "too long"], ids=str)
def test_an_article_is_read_without_a_wrong_field(name: str, wrong: object) -> None:
    """Wherever its fields are; it says which one is missing, and keeps the others."""
    others = dict.fromkeys(OPTIONAL_FIELDS, "x")
    fields = others | {name: "x" * (MAX_CHARS[name] + 1) if wrong == "too long" else wrong}
    kept = {each: text for each, text in others.items() if each != name}
    expected = Article("a-1", kept.pop("title", ""), "Oslo", kept, dropped=(name,))
    assert expected == read(USUAL | fields, FieldMapping(drop_wrong=True))
    assert expected == read({"id": "a-1", "body": "Oslo", "deep": fields}, FieldMapping(MAPPED, drop_wrong=True))
    for mapping, document in ((FieldMapping(), USUAL | fields), (FieldMapping(MAPPED), {**USUAL, "deep": fields})):
        with pytest.raises(InvalidArticle, match=f"^{name} "):
            read(document, mapping)


def test_needed_fields_are_never_dropped() -> None:
    """Without its id or body, an article is none; nor without its only text."""
    for wrong, reason in (({"id": 1}, "id is not a string"), ({"body": 1}, "body is not a string")):
        with pytest.raises(InvalidArticle, match=reason):
            read(USUAL | wrong, FieldMapping(drop_wrong=True))
    with pytest.raises(InvalidArticle, match="no visible character"):
        read(USUAL | {"title": 1, "body": ""}, FieldMapping(drop_wrong=True))


def test_the_setting_decides() -> None:
    """By default, a wrong field costs the field and not the article."""
    raw = RawRecord(Partition("t", 0), 0, None, orjson.dumps(USUAL | {"url": 7}))
    assert ("url",) == article_in(line_reader(Settings()).read(raw)).dropped
    strict = given_settings({"articles": {"wrong_optional": "dead_letter"}})
    with pytest.raises(InvalidArticle, match="url is not a string"):
        line_reader(strict).read(raw)


@pytest.mark.parametrize("output_format", ["json", "json-schema", "avro", "protobuf"])
def test_a_record_names_what_was_dropped_in_every_format(output_format: RecordFormat) -> None:
    """And a record without such fields has no empty list of them; `verify` reads the same."""
    for dropped in (("title", "url"), ()):
        article = Article("a-1", "", "Oslo", {"language": "nb"}, dropped=dropped)
        record = plain_record(article, (), Coverage(1, 1, truncated=False))
        writer = record_writer(output_format)
        if writer.schema:
            writer.begin_with(7)
        read_again = record_as_json(writer.write(record), writer.content_type)
        wanted = orjson.loads(encode_record(record))
        assert wanted == orjson.loads(read_again) == document_of(writer.write(record), writer.content_type)
        assert (["title", "url"] if dropped else None) == wanted.get("dropped_fields")


@pytest.mark.parametrize("kind", ["long", {"type": "long", "logicalType": "timestamp-millis"}], ids=str)
def test_a_time_of_avro_is_the_same_with_and_without_its_logical_type(kind: object) -> None:
    """Many schemas have a plain long in milliseconds."""
    fields = [
        {"name": "id", "type": "string"},
        {"name": "body", "type": "string"},
        {"name": "published_at", "type": ["null", kind], "default": None},
    ]
    schema = {"type": "record", "name": "Article", "fields": fields}
    written = io.BytesIO()
    fastavro.schemaless_writer(
        written, fastavro.parse_schema(schema), {"id": "a", "body": "Oslo", "published_at": 1_773_482_400_123}
    )
    document = compile_schema(Schema("AVRO", json.dumps(schema)))(written.getvalue())
    assert "2026-03-14T10:00:00.123Z" == read(document, FieldMapping()).metadata["published_at"]


def test_the_summary_of_a_run_names_what_was_dropped() -> None:
    """`enrich` ends with it; it says nothing where nothing was dropped."""
    counters = Counters()
    assert "optional" not in describe(counters)
    counters.dropped_fields.update(["url", "title", "url"])
    assert describe(counters).endswith("; optional fields dropped: 2 url, 1 title")
