"""`enricher tail` against the real broker, and what it shows of a record."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import orjson
import pytest
from commands.cli_runner import article, enriched_record, run
from kafka.harness import transaction
from support.operating import write
from support.records import plain_record, record_of_tasks

from enricher.operate.tail import as_line, record_lines
from enricher.worker.articles import encode_record, record_writer
from enricher.worker.commands.console import printable
from enricher.worker.contracts import RecordFormat
from enricher.worker.records import (
    Article,
    Coverage,
    Entity,
    Partition,
    RawRecord,
    TaskReport,
)

if TYPE_CHECKING:
    from support.topics import Topics

FROM_ALL = ("tail", "--from-beginning", "--until-end")


def fill(topics: Topics, *names: str) -> None:
    """Put articles into partition 1, and a record for each into the output."""
    bootstrap = topics.bootstrap_servers
    write(
        bootstrap, topics.input, [{"key": n.encode(), "value": orjson.dumps(article(n)), "partition": 1} for n in names]
    )
    records = [enriched_record(name, (topics.input, 1, offset)) for offset, name in enumerate(names)]
    write(bootstrap, topics.output, records)


@pytest.mark.broker
def test_every_committed_record_is_shown_with_its_entities(topics: Topics) -> None:
    """A record without a value is a deletion, other programs may write to the topic too, and an empty topic ends at once.

    The end after an aborted transaction is reached all the same.
    """
    assert (0, "") == ((result := run(*FROM_ALL, env=topics.environment)).exit_code, result.stdout)
    others = (b"no JSON", b"[]", b"{}", b'{"id": "a", "entities": [5], "coverage": {}}', b"\xff")
    write(topics.bootstrap_servers, topics.output, [{"value": value, "partition": 1} for value in others])
    fill(topics, "a")
    write(topics.bootstrap_servers, topics.output, [{"key": b"a", "value": None, "partition": 1}])
    with transaction(topics.bootstrap_servers, topics.group, commit=False) as producer:
        producer.produce(topics.output, b"{}", b"never", partition=1)
    result = run(*FROM_ALL, env=topics.environment)
    assert result.exit_code == 0, result.output
    *refused, record, title, body, deleted = result.stdout.splitlines()
    assert [f"not an enriched record: {topics.output}[1]@{offset}" for offset in range(5)] == refused
    assert ["a: 9 tokens, 1 window(s)", "  title: [Lisbon LOC]", "  body: [Ana Ribeiro PER]"] == [record, title, body]
    assert "deleted: a" in deleted


@pytest.mark.broker
def test_json_lines_hold_key_headers_and_value(topics: Topics) -> None:
    """Standard output has one object per record, with headers as text, and nothing else."""
    fill(topics, "a", "b", "c")
    result = run(*FROM_ALL, "--json", "--limit", "2", env=topics.environment)
    assert result.exit_code == 0, result.output
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert [line["key"] for line in lines] == ["a", "b"]
    assert lines[1]["headers"]["enricher.source.offset"] == "1"
    assert lines[1]["value"]["entities"][1]["text"] == "Ana Ribeiro"


@pytest.mark.parametrize("value", [b"[" * 900 + b"]" * 900, b'{"a": 123456789012345678901234567890}', b"{\r\n}\n"])
def test_a_value_stands_in_its_line_as_it_stands_in_the_topic(value: bytes) -> None:
    """A dead letter's value is untrusted: it may be nested too deeply or have too long numbers to be written again."""
    line = as_line(RawRecord(Partition("t", 0), 0, None, value))
    assert b"\n" not in line
    assert orjson.loads(line)["value"] == orjson.loads(value)
    assert value.strip().replace(b"\r\n", b"  ") in line


@pytest.mark.parametrize("output_format", ["avro", "protobuf", "json-schema"])
def test_a_record_in_any_format_stands_in_its_line_as_json(output_format: RecordFormat) -> None:
    """The whole article of a record too, byte by byte: its numbers may be longer than any number of a program."""
    document = b'{"id": "a", "body": "Oslo", "price": 123456789012345678901234567890.10}'
    entity = Entity(field="body", start=0, end=4, text="Oslo", label="LOC", score=0.9876)
    written = plain_record(Article("a", "", "Oslo", document=document), (entity,), Coverage(1, 1, truncated=False))
    writer = record_writer(output_format)
    writer.begin_with(12)
    headers = (("content-type", writer.content_type),)
    value = writer.write(written)
    line = as_line(RawRecord(Partition("t", 0), 0, None, value, headers))
    read = orjson.loads(line)["value"]
    assert [entity] == read["entities"]
    assert document in line


@pytest.mark.parametrize("content_type", [None, b"application/json", b"application/avro"])
def test_a_value_in_none_of_our_formats_stands_in_its_line_as_text(content_type: bytes | None) -> None:
    """A dead letter may be Avro of any schema."""
    value = b"\0\0\0\0\x09\x02\xff"
    line = as_line(RawRecord(Partition("t", 0), 0, None, value, (("content-type", content_type),)))
    assert value.decode("utf-8", "backslashreplace") == orjson.loads(line)["value"]


@pytest.mark.broker
def test_dead_letters_are_shown_with_their_reason_and_place(topics: Topics) -> None:
    """The output has the reason and the position of the input, never its text; --json has a non-JSON value as a string."""
    headers = {"stage": "decode", "error.type": "InvalidArticle", "error.message": "body is missing", "attempts": "1",
               "source.topic": topics.input, "source.partition": "2", "source.offset": "7", "time": "now"}  # fmt: skip
    sent = [(f"enricher.dlq.{name}", text.encode()) for name, text in headers.items()]
    write(topics.bootstrap_servers, topics.dead_letters, [{"value": b"SECRET \xff", "headers": sent}])
    result = run(*FROM_ALL, "--dead-letters", env=topics.environment)
    assert "decode: InvalidArticle: body is missing" in result.stdout
    assert f"{topics.input}[2]@7" in result.stdout
    assert "SECRET" not in result.stdout
    machine = run(*FROM_ALL, "--dead-letters", "--json", env=topics.environment)
    assert json.loads(machine.stdout)["value"] == "SECRET \\xff"


def test_control_characters_of_an_article_never_reach_the_terminal() -> None:
    """They become spaces."""
    assert printable("a\x1b[31mb\x9b") == "a [31mb "
    assert printable("a\u200fb\u2028c\u202ed") == "a b c d"


def test_classes_and_the_dimensions_of_vectors_are_shown() -> None:
    """A line for each task that finds no entities; nobody reads the numbers of a vector."""
    record = record_of_tasks()
    reports = [*record.tasks[:3], TaskReport(record.tasks[3].task, None)]
    record = replace(
        record, findings={**record.findings, "embeddings": record.findings["embeddings"][:1]}, tasks=reports
    )
    value = encode_record(record)
    assert [
        "a-1: 5 tokens, 1 window(s)",
        "  body: [Oslo LOC]",
        "  topic: history 0.75",
        "  similar: vector of 4 dimensions",
        "  halves: not for the article's language",
    ] == shown(value)
    nothing = orjson.dumps(orjson.loads(value) | {"classifications": [], "embeddings": []})
    assert ["  topic: no class", "  similar: no vector"] == shown(nothing)[2:4]


def shown(value: bytes) -> list[str]:
    """The lines for a record with this value."""
    return list(record_lines(RawRecord(Partition("t", 0), 0, b"k", value)))
