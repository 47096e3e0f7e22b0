"""All formats share these: the choice of a decoder, the extra with the libraries, JSON with a schema, and a new format."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import orjson
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from support.records import article_in

from enricher.errors import InvalidArticle, SettingsError
from enricher.worker.articles import ArticleReader, formats
from enricher.worker.articles.formats import compile_schema
from enricher.worker.articles.schemas import Schema
from enricher.worker.records import Partition, RawRecord


def test_an_unknown_type_of_schema_is_refused() -> None:
    """A registry may have others than ours."""
    unknown: Any = "XML"
    with pytest.raises(InvalidArticle, match="only AVRO, PROTOBUF and JSON"):
        formats.compile_schema(Schema(unknown, "<x/>"))


def test_a_missing_library_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of a package that is missing as a whole, too."""
    toy = formats.InputFormat(formats.compile_schema, ("json", "no_such_library", "no_such.library"))
    monkeypatch.setitem(formats.SCHEMA_FORMATS, "JSON", toy)
    with pytest.raises(
        SettingsError, match=r"no_such_library, no_such\.library: .*pip install 'kafka-enricher\[registry\]'"
    ):
        formats.require_formats()


def test_no_library_is_imported_before_a_schema_needs_it() -> None:
    """A worker that reads JSON does not wait for them, and need not have them."""
    program = (
        "import sys; from enricher.worker.articles import formats; from enricher.worker.articles.schemas import Schema;"
        "formats.require_formats(); formats.compile_schema(Schema('JSON', '{}'));"
        "print(sorted({'fastavro', 'google.protobuf.message', 'grpc_tools'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)
    assert "[]" == done.stdout.strip()


_KEPT = """
import gc, pickle, resource, sys
from enricher.worker.articles.formats import compile_schema

def resident_bytes():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()

kept = []
for schema in pickle.load(sys.stdin.buffer):
    before_bytes = resident_bytes()
    decode = compile_schema(schema)
    kept.append((decode, decode(b"\\0")))
    print(resident_bytes() - before_bytes)
"""


def _large_schemas() -> Iterator[Schema]:
    """Schemas with as many declarations as fit; small ones come first, so that the libraries are imported."""
    yield Schema("AVRO", '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}')
    yield Schema("PROTOBUF", _described(FileDescriptorProto(), 1))
    fixed = [{"type": "fixed", "name": f"F{number}", "size": 0} for number in range(10_000)]
    yield Schema("AVRO", json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": fixed}]}))
    yield Schema("PROTOBUF", _described(FileDescriptorProto(), 3_000))
    values = FileDescriptorProto(package="p" * 490)
    enum = values.enum_type.add(name="E")
    for number in range(25_000):
        enum.value.add(name=f"V{number}", number=number)
    yield Schema("PROTOBUF", _described(values, 1))


def _described(file: FileDescriptorProto, messages: int) -> str:
    for number in range(messages):
        file.message_type.add(name=f"M{number}")
    file.syntax = "proto3"
    return b64encode(file.SerializeToString()).decode()


@pytest.mark.slow
def test_a_decoder_takes_no_more_memory_than_its_schema_says() -> None:
    """The decoders that a worker keeps are bounded by that estimate."""
    schemas = list(_large_schemas())
    done = subprocess.run([sys.executable, "-c", _KEPT], input=pickle.dumps(schemas), capture_output=True, check=True)
    kept_bytes = [int(line) for line in done.stdout.splitlines()]
    pairs = [(schema.decoder_bytes, each) for schema, each in zip(schemas, kept_bytes, strict=True)][2:]
    assert all(each < most + (2 << 20) for most, each in pairs), pairs
    # Memory that was free before is used first, so what one decoder takes may seem too little.
    assert 0.2 * sum(most for most, _ in pairs) < sum(each for _, each in pairs), pairs


REGEX = '{"type": "object", "properties": {"id": {"type": "string", "pattern": "(a+)+$"}}}'


@pytest.mark.parametrize("schema", [REGEX, "[" * 1_000_000], ids=["a regular expression", "a million levels"])
def test_a_json_schema_is_not_looked_at(schema: str) -> None:
    """However hostile: its regular expression would take hours. A byte order mark is skipped as without a schema."""
    decode = compile_schema(Schema("JSON", schema))
    assert {"id": "a" * 5_000 + "!"} == decode(b'\xef\xbb\xbf{"id": "' + b"a" * 5_000 + b'!"}')


@pytest.mark.parametrize(
    "payload", [b"", b"{", b"{} x", b"[]", b'"text"', b"null", b"NaN", b"\xff", b"[" * 1_000_000, b'{"a":' * 1_000_000]
)
def test_what_is_no_object_is_refused(payload: bytes) -> None:
    """Trailing bytes and a million levels too."""
    with pytest.raises(InvalidArticle, match=r"^value "):
        compile_schema(Schema("JSON", "{}"))(payload)


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
