"""Framed values that nobody would write on purpose: a document or `InvalidArticle` comes out, nothing else.

20,000 of them, or the long form: `scripts/test tests/fuzz/test_fuzz_frames.py --fuzz-frames 100000`.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from io import BytesIO
from uuid import UUID

import fastavro
import orjson
import pytest
from fuzz.test_fuzz_codec import CANARY, random_bytes
from support.properties import examples

from enricher.errors import InvalidArticle
from enricher.worker.articles.envelope import HEADER, read_frame
from enricher.worker.articles.formats import compile_schema
from enricher.worker.articles.schemas import Decoder, Schema
from enricher.worker.records import Headers

GUID = UUID(int=7).bytes
ARTICLE = {
    "id": "a-1",
    "title": None,
    "body": [f"Zoë, the {CANARY} \U0001f68b", ""],
    "score": 0.5,
    "more": {"k": [1, -9]},
}
AVRO = {
    "type": "record",
    "name": "Article",
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "title", "type": ["null", "string"]},
        {"name": "body", "type": {"type": "array", "items": "string"}},
        {"name": "score", "type": "double"},
        {"name": "more", "type": {"type": "map", "values": {"type": "array", "items": "long"}}},
        {"name": "kin", "type": ["null", "Article"], "default": None},
        {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None},
        {"name": "raw", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9}], "default": None},
        {"name": "kind", "type": ["null", {"type": "enum", "name": "Kind", "symbols": ["NEWS"]}], "default": None},
    ],
}
PROTO = """syntax = "proto3"; import "google/protobuf/struct.proto"; import "google/protobuf/timestamp.proto";
message Article {
  string id = 1; optional string title = 2; repeated string body = 3; double score = 4; map<string, Longs> more = 5;
  Article kin = 6; google.protobuf.Timestamp at = 7; bytes raw = 8; google.protobuf.Struct any = 9; fixed32 n = 10;
}
message Longs { repeated sint64 value = 1; }
"""
PIECES = [
    b"\x00", b"\x01", b"\x02", b"\x7f", b"\x80", b"\xff" * 10, b"\xfe" + b"\xff" * 8 + b"\x01", b"\x80\x80\x80\x80\x10",
    b"\x0a", b"\x12", b"\x1a", b"\x2a", b"\x32", b"\x3a", b"\x4a", b"\x0b", b"\x0c", b"\xc3(", b"\xed\xa0\xbd",
    b"\x32\x00" * 40, b"\x02" * 300, b"[" * 1_100, b'{"a":', b"{}", b"\xef\xbb\xbf", b"NaN", GUID,
]  # fmt: skip


@pytest.fixture(scope="module")
def decoders() -> dict[str, Decoder]:
    """One of each format."""
    return {
        "avro": compile_schema(Schema("AVRO", json.dumps(AVRO))),
        "protobuf": compile_schema(Schema("PROTOBUF", PROTO)),
        "json": compile_schema(Schema("JSON", "{}")),
    }


def good(format_name: str) -> bytes:
    """A payload that is read."""
    if format_name == "avro":
        out = BytesIO()
        fastavro.schemaless_writer(
            out, fastavro.parse_schema(AVRO), ARTICLE | {"at": 1_000, "kind": "NEWS", "kin": ARTICLE}
        )
        return out.getvalue()
    if format_name == "json":
        return orjson.dumps(ARTICLE)
    fields = (
        b"\x0a\x03a-1\x1a\x02ab\x21" + bytes(8) + b"\x2a\x07\x0a\x01k\x12\x02\x0a\x00\x32\x03\x0a\x01b\x3a\x02\x08\x01"
    )
    return b"\x00" + fields + b"\x4a\x0b\x0a\x09\x0a\x01x\x12\x04\x1a\x02hi\x55\x01\x02\x03\x04"


def mutated(value: bytes, dice: random.Random) -> bytes:
    """Flipped bits, cuts, and what parsers stumble over."""
    changed = bytearray(value)
    for _ in range(dice.randint(0, 3)):
        place = dice.randrange(len(changed) + 1)
        kind = dice.randrange(4)
        if kind == 0:
            changed[place:place] = dice.choice(PIECES)
        elif kind == 1 and place < len(changed):
            changed[place] ^= 1 << dice.randrange(8)
        elif kind == 2:
            del changed[place : place + dice.randint(1, 9)]
        else:
            changed[place : place + 1] = dice.randbytes(dice.randint(1, 12))
    return bytes(changed)


def in_frame(payload: bytes, dice: random.Random) -> tuple[bytes, Headers]:
    """The payload in any frame, which may be damaged itself."""
    value, headers = dice.choice([
        (b"\x00\x00\x00\x00\x07" + payload, ()),
        (b"\x01" + GUID + payload, ()),
        (b"\x03\x00" + GUID + payload, ()),
        (payload, ((HEADER, b"\x01" + GUID),)),
        (payload, ((HEADER, mutated(b"\x01" + GUID + b"\x02\x00", dice)),)),
    ])  # fmt: skip
    return (mutated(value, dice) if dice.randrange(4) == 0 else value), headers


def verdict(value: bytes, headers: Headers, decode: Decoder) -> str:
    """`document`, `no frame` or `refused`; anything else is the failure that is looked for."""
    try:
        frame = read_frame(value, headers)
        if frame is None:
            return "no frame"
        document = decode(frame.payload)
    except InvalidArticle as error:
        reason = str(error)
        assert reason.isascii() and CANARY not in reason and len(reason) < 300, "reasons reach logs"  # noqa: PT018  one claim
        return "refused"
    assert type(document) is dict
    orjson.dumps(document)  # nothing that JSON does not have, no lone surrogate
    return "document"


def _hostile(name: str, count: int) -> Iterator[tuple[bytes, Headers]]:
    """The same in every run: random bytes and payloads with changes, in all frames."""
    dice = random.Random(f"enricher frames {name}")
    payload = good(name)
    for _ in range(count):
        if dice.randrange(4) == 0:
            yield random_bytes(dice), ()
        else:
            yield in_frame(random_bytes(dice) if dice.randrange(4) == 0 else mutated(payload, dice), dice)


@pytest.mark.parametrize("name", ["avro", "protobuf", "json"])
def test_any_frame_is_a_document_or_an_invalid_one(
    decoders: dict[str, Decoder], name: str, pytestconfig: pytest.Config
) -> None:
    """The same bytes in every run, so that a failure can be found again; in `--quick` the first fifth of them."""
    count = examples(pytestconfig.getoption("--fuzz-frames")).max_examples // len(decoders)
    seen = Counter(verdict(value, headers, decoders[name]) for value, headers in _hostile(name, count))
    assert count == seen.total()
    assert seen["refused"] > 0
    assert seen["no frame"] > 0
    assert seen["document"] > 0, "the mutations are not so harsh that nothing gets past the decoders"
