"""What all formats share: the choice of a decoder, and the extra that brings the libraries."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from enricher.errors import InvalidArticle, SettingsError
from enricher.worker.articles import formats
from enricher.worker.articles.schemas import Schema


def test_an_unknown_type_of_schema_is_refused() -> None:
    """A registry may have others than ours."""
    unknown: Any = "XML"
    with pytest.raises(InvalidArticle, match="only AVRO, PROTOBUF and JSON"):
        formats.compile_schema(Schema(unknown, "<x/>"))


def test_the_libraries_of_the_extra_are_there() -> None:
    """Guards the test below."""
    formats.require_formats()


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
    fixed = [{"type": "fixed", "name": f"F{number}", "size": 0} for number in range(20_000)]
    yield Schema("AVRO", json.dumps({"type": "record", "name": "R", "fields": [{"name": "a", "type": fixed}]}))
    yield Schema("PROTOBUF", _described(FileDescriptorProto(), 5_000))
    values = FileDescriptorProto(package="p" * 490)
    enum = values.enum_type.add(name="E")
    for number in range(49_000):
        enum.value.add(name=f"V{number}", number=number)
    yield Schema("PROTOBUF", _described(values, 1))


def _described(file: FileDescriptorProto, messages: int) -> str:
    for number in range(messages):
        file.message_type.add(name=f"M{number}")
    file.syntax = "proto3"
    return b64encode(file.SerializeToString()).decode()


@pytest.mark.slow
def test_a_decoder_takes_no_more_memory_than_its_schema_says() -> None:
    """By that the decoders that a worker keeps are bounded."""
    schemas = list(_large_schemas())
    done = subprocess.run([sys.executable, "-c", _KEPT], input=pickle.dumps(schemas), capture_output=True, check=True)
    kept_bytes = [int(line) for line in done.stdout.splitlines()]
    assert len(schemas) == len(kept_bytes)
    assert [True] * 3 == [
        0.2 * schema.decoder_bytes < each_bytes < schema.decoder_bytes + (2 << 20)
        for schema, each_bytes in list(zip(schemas, kept_bytes, strict=True))[2:]
    ], kept_bytes
