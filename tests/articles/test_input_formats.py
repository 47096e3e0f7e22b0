"""Which schema a value names, and that nothing damaged gets through.

And what all formats share: the choice of a decoder, the extra with the libraries, JSON with a schema, and a new format.
"""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast
from uuid import UUID

import orjson
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from support.records import article_in

from enricher.errors import InvalidArticle, SettingsError
from enricher.worker.articles import ArticleReader, formats
from enricher.worker.articles.envelope import HEADER, read_frame
from enricher.worker.articles.formats import compile_schema
from enricher.worker.articles.schemas import Schema
from enricher.worker.records import Headers, Partition, RawRecord

GUID = UUID("89791762-2336-4186-9674-299b90a802e2")


def reason_of(value: bytes, headers: Headers = ()) -> str:
    """Why a value is refused."""
    with pytest.raises(InvalidArticle) as caught:
        read_frame(value, headers)
    assert "payload" not in str(caught.value), "reasons reach logs"
    return str(caught.value)


BY_GUID, BY_SEVEN, BY_EIGHT = b"\x01" + GUID.bytes, b"\x00\x00\x00\x00\x07", b"\x00\x00\x00\x00\x08"


@pytest.mark.parametrize(
    ("value", "headers", "schema", "payload"),
    [
        (b"\x00\x00\x00\x01\x02payload", (), "id 258", b"payload"),
        (b"\x00\x7f\xff\xff\xff", (), "id 2147483647", b""),
        (BY_GUID + b"payload", (), f"guid {GUID}", b"payload"),
        (b"payload", ((HEADER, BY_GUID),), f"guid {GUID}", b"payload"),
        (b"payload", ((HEADER, BY_SEVEN),), "id 7", b"payload"),
        # Message indexes in the header are moved to where a prefix has them.
        (b"payload", ((HEADER, BY_GUID + b"\x04\x02\x00"),), f"guid {GUID}", b"\x04\x02\x00payload"),
        # The header wins over a prefix and over JSON: the value is then not looked at.
        (BY_SEVEN + b"payload", ((HEADER, BY_GUID),), f"guid {GUID}", BY_SEVEN + b"payload"),
        (b"{}", ((HEADER, BY_SEVEN),), "id 7", b"{}"),
        # The first of several headers counts, and one without a value does not.
        (b"p", (("x", None), (HEADER, BY_SEVEN), (HEADER, BY_EIGHT)), "id 7", b"p"),
        (BY_EIGHT + b"p", ((HEADER, None), (HEADER, BY_SEVEN)), "id 8", b"p"),
    ],
)
def test_a_frame_names_its_schema(value: bytes, headers: Headers, schema: str, payload: bytes) -> None:
    """Confluent's deserializers read it alike."""
    frame = read_frame(value, headers)
    assert frame is not None
    assert (schema, payload) == (str(frame.reference), frame.payload)


def test_negative_ids_are_refused_without_asking() -> None:
    """A registry answers them as if they were another path, which looks like an outage and would be waited for."""
    assert "the schema id is -1, which no registry gives" in reason_of(b"\x00\xff\xff\xff\xff")


@pytest.mark.parametrize("value", [b"{}", b"[]", b" {}", b"\n{}", b"\t{}", b"\r{}", b"\xef\xbb\xbf{}"])
def test_what_begins_as_json_has_no_frame(value: bytes) -> None:
    """White space and a byte order mark may come before JSON."""
    assert read_frame(value, ()) is None


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"", "empty"),
        (b"\x00\x00\x00\x01", "at least 5 bytes, found 4"),
        (b"\x01" + GUID.bytes[:15], "at least 17 bytes, found 16"),
        (b"\x02\x00", "begins with byte 02: expected 00"),
        (b"\x03\x00" + GUID.bytes, "begins with byte 03: expected 00"),
        (b"Obj\x01", "begins with byte 4f: expected 00"),
    ],
)
def test_a_damaged_frame_is_refused_with_what_was_expected(value: bytes, said: str) -> None:
    """Never a guess, never another error."""
    assert said in reason_of(value)


@pytest.mark.parametrize("header", [b"", b"\x00\x00", b"\x01" + GUID.bytes[:15], b"\x03" + GUID.bytes, b"{}"])
def test_a_damaged_header_is_refused_by_its_name(header: bytes) -> None:
    """Even if the value has a prefix that could be read."""
    assert reason_of(b"\x00\x00\x00\x00\x07payload", ((HEADER, header),)).startswith(f"header {HEADER} ")


# ---- formats


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
