"""Hostile inputs: small on the wire, or valid, but expensive to process."""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import orjson
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

Headers = Sequence[tuple[str, bytes]]
MB = 1_000_000


@dataclass(frozen=True, slots=True)
class Attack:
    """`count` records of one kind. `codec`: the publisher's compression; `topic`: changed settings of the input topic.

    `settings`: environment variables of the worker, without their prefix. `registered`: the schema that a registry has under
    the id 1, as it answers. `good`: ordinary articles that are published after these, to another partition.
    """

    name: str
    what: str
    count: int
    value: bytes | Callable[[int], bytes]
    """The same value for all, or the value of each by its number."""
    codec: str = "none"
    headers: Headers = ()
    topic: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    registered: Mapping[str, str] | None = None
    good: int = 0

    def values(self, share: float) -> Iterator[bytes]:
        for number in range(max(1, round(self.count * share))):
            yield self.value if isinstance(self.value, bytes) else self.value(number)


@dataclass(frozen=True, slots=True)
class FileAttack:
    """A gzip file of `lines` equal lines, for `enricher enrich`."""

    name: str
    what: str
    lines: int
    line: bytes

    def write(self, folder: Path, share: float) -> tuple[Path, int]:
        """Write the file; returns it and its number of lines. The line is packed once: gzip files may be concatenated."""
        path, count = folder / f"{self.name}.jsonl.gz", max(1, round(self.lines * share))
        packed = gzip.compress(self.line + b"\n", 6)
        with path.open("wb") as file:
            for _ in range(count):
                file.write(packed)
        return path, count


_AS_USUAL = {"compression.type": "producer"}
"""Kafka's default: the topic keeps the publisher's compression."""


def article(body: str) -> bytes:
    return orjson.dumps({"id": "hostile", "body": body})


def attacks() -> list[Attack]:
    """Attacks through a topic, which `topics create` makes unless `topic` says otherwise."""
    letters, huge = article("a" * 45 * MB), article("a" * 400 * MB)
    nested = b'{"id":"nested","body":"b","more":[' + b"[]," * (5 * MB) + b"[]]}"
    short, few = article("Anna met Bob in Paris."), [("h", b"1")] * 95_000
    made = [
        Attack("none", "no attack: 100 short articles", 100, short),
        Attack("zstd", "200 articles of 45 MB of one letter, zstd", 200, letters, "zstd"),
        Attack("gzip", "4 articles of 400 MB, gzip", 4, huge, "gzip"),
        Attack("headers", "1,000 articles with 95,000 headers of two bytes", 1_000, short, "zstd", few),
        Attack("headers-190000", "10 articles with 190,000 headers", 10, short, "zstd", few * 2),
        Attack("nested", "30 values of 15 MB of nested arrays", 30, nested),
        Attack("marks", "100 articles of 1 MB of '!'", 100, article("!" * (MB - 100))),
        Attack("cjk", "100 articles of 1 MB of Chinese", 100, article("\u5317\u4eac\u5e02\u6c11" * (MB // 12))),
        Attack("word", "100 articles of 1 MB that is one word", 100, article("w" * (MB - 100))),
        Attack("100MB", "one record of 100 MB, zstd", 1, b"a" * 100 * MB, "zstd"),
    ]
    return made + [_kept_packed(attack) for attack in made if attack.codec != "none"] + schema_attacks()


MORE = {"ARTICLES__METADATA": '{"more": "/more"}'}
"""The field that is large belongs to the record."""
REGISTRY = {"ARTICLES__FORMAT": "registry", **MORE}
FRAME = b"\0\0\0\0\1"
"""Confluent's prefix with the schema id 1."""
_TEXTS = "string id = 1; string body = 2;"
ARRAYS = b'{"id":"m","body":"Oslo","more":[' + b"[]," * 32_600 + b"[]]}"


def schema_attacks() -> list[Attack]:
    """Attacks that need settings of their own: tasks by language, metadata, a schema of the publisher's."""
    tag = orjson.dumps({"id": "l", "body": "Anna met Bob in Paris.", "language": "e-" * 200_000})
    tasks = {"TASKS": '{"names": {"source": "newswire-e5", "languages": ["en"], "default": true}}'}
    name = "n" * 300_000
    avro_names = _avro({"type": "array", "items": {"type": "record", "name": "E", "fields": [_field(name, "null")]}})
    count = 3_000
    messages = " ".join(f"message M{n} {{ {_TEXTS} M{(n + 1) % count} more = 3; }}" for n in range(count))
    recursive = _protobuf(f"message A {{ {_TEXTS} A more = 3; }}")
    rows = [
        Attack("language", "20 articles with a language of 400 kB, tasks by language", 20, tag, settings=tasks),
        Attack("metadata", "1,900 articles of 98 kB of arrays that `articles.metadata` names", 1_900, ARRAYS, settings=MORE),
        _frame("avro-names", "5 Avro values of 16 bytes that repeat a name of 300 kB", 5, avro_names,
                lambda _: _AVRO_TEXTS + _varint(200_000) + b"\0"),
        _frame("avro-types", "200 Avro values of 24 kB that name 48 types within each other", 200, *_nested_types()),
        _frame("protobuf-names", "5 Protobuf values of 200 kB that repeat a name of 300 kB", 5, _descriptor_of(name),
                lambda _: b"\2\2" + _PROTOBUF_TEXTS + b"\x1a\0" * 100_000),
        _frame("protobuf-messages", "6,000 Protobuf values of 20 bytes, each of another type", 6_000, _protobuf(messages),
                lambda n: b"\2" + _varint(2 * (1 + n % (count - 1))) + _PROTOBUF_TEXTS),
        _frame("protobuf-unknown", "30 Protobuf values of 4 MB of unknown fields", 30, recursive,
                lambda _: b"\0" + _PROTOBUF_TEXTS + b"\x22\0" * (2 * MB)),
        _frame("protoc-many", "20 values by a schema of 0.9 MB with 53,000 messages", 20, _protobuf(_MANY),
                lambda _: b"\0"),
        _frame("protoc-enum", "20 values by a schema of 0.8 MB with 49,000 values of an enum", 20, _protobuf(_ENUM),
                lambda _: b"\0" + _PROTOBUF_TEXTS),
        _frame("protoc-deep", "20 values by a schema of 1 MB that crashes protoc", 20, _protobuf(_DEEP),
                lambda _: b"\0"),
    ]  # fmt: skip
    return [replace(attack, good=20) for attack in rows]


_MANY = " ".join(f"message M{number} {{}}" for number in range(53_000))
_ENUM = (
    f"message A {{ {_TEXTS} }} enum E {{ A = 0; {' '.join(f'B{number} = {number};' for number in range(1, 49_000))} }}"
)
_DEEP = f"""import "google/protobuf/descriptor.proto"; message O {{ O o = 1; }}
    extend google.protobuf.FileOptions {{ O o = 50000; }} option (o) = {"{o " * 240_000}{"}" * 240_000};"""


_AVRO_TEXTS = b"\x02a\x08Oslo"
_PROTOBUF_TEXTS = b"\x0a\x01a\x12\x04Oslo"


def _frame(name: str, what: str, count: int, registered: Mapping[str, str], payload: Callable[[int], bytes]) -> Attack:
    return Attack(name, what, count, lambda number: FRAME + payload(number), settings=REGISTRY, registered=registered)


def _field(name: str, kind: object) -> dict[str, object]:
    return {"name": name, "type": kind}


def _avro(kind: object) -> dict[str, str]:
    fields = [_field("id", "string"), _field("body", "string"), _field("more", kind)]
    # Not orjson, which writes fewer levels.
    return {"schema": json.dumps({"type": "record", "name": "A", "fields": fields}, separators=(",", ":"))}


def _nested_types() -> tuple[dict[str, str], Callable[[int], bytes]]:
    """A schema with 48 records within each other, and what reads each of them by its name."""
    levels, width = 48, 500
    kind: object = "int"
    for level in range(levels):
        fields = [_field(f"f{number}", ["null", "int"]) for number in range(width)]
        kind = {"type": "record", "name": f"N{level}", "fields": [_field("inner", ["null", kind]), *fields]}
    named = [_field(f"n{level}", f"N{level}") for level in range(levels)]
    schema = _avro({"type": "record", "name": "More", "fields": [_field("all", ["null", kind]), *named]})
    return schema, lambda _: _AVRO_TEXTS + b"\0" * (1 + levels * (1 + width))


def _protobuf(text: str) -> dict[str, str]:
    return {"schema": f'syntax = "proto3"; {text}', "schemaType": "PROTOBUF"}


def _descriptor_of(name: str) -> dict[str, str]:
    """A schema as Confluent's Python client registers it: protoc takes no such name in a text."""
    file = FileDescriptorProto(syntax="proto3")
    item = file.message_type.add(name="E").field.add(name=name, number=1)
    item.type, item.label = FieldDescriptorProto.TYPE_INT32, FieldDescriptorProto.LABEL_OPTIONAL
    message = file.message_type.add(name="A")
    for number, text in enumerate(("id", "body"), 1):
        message.field.add(name=text, number=number, type=FieldDescriptorProto.TYPE_STRING, label=item.label)
    items = message.field.add(name="more", number=3, type_name=".E")
    items.type, items.label = FieldDescriptorProto.TYPE_MESSAGE, FieldDescriptorProto.LABEL_REPEATED
    return {"schema": b64encode(file.SerializeToString()).decode(), "schemaType": "PROTOBUF"}


def _varint(number: int) -> bytes:
    """A number as Protobuf writes it."""
    encoded = b""
    while number >= 0x80:
        encoded, number = encoded + bytes([number & 0x7F | 0x80]), number >> 7
    return encoded + bytes([number])


def _kept_packed(attack: Attack) -> Attack:
    """The same attack on a topic that keeps compressed batches, as most existing topics do."""
    return replace(attack, name=f"{attack.name}-kept", what=f"{attack.what}, kept packed", topic=_AS_USUAL)


def file_attacks() -> list[FileAttack]:
    return [FileAttack("file", "enrich FILE.gz: 100 lines of 66 MB in 6.6 MB", 100, article("a" * 66 * MB))]
