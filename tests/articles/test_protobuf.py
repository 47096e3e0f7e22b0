"""Protobuf: what Confluent's serializer writes, what documents look like, and payloads and schemas that mean harm."""

from __future__ import annotations

import re
import subprocess
import sys
import tracemalloc
from base64 import b64encode
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc
from support.bounded import Hostile, outcomes, refusal

from enricher.worker.articles.envelope import read_frame
from enricher.worker.articles.formats import compile_schema, protobuf_schema
from enricher.worker.articles.formats.protobuf_schema import load_files
from enricher.worker.articles.schemas import Decoder, NamedSchema, Schema

Message = Any
MEGABYTES = 4 << 20
AUTHOR = NamedSchema("people/author.proto", 'syntax = "proto3"; package acme; message Author { string name = 1; }')
TEXT = """
syntax = "proto3";
package acme;
import "google/protobuf/duration.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";
import "google/type/date.proto";
import "confluent/type/decimal.proto";
import "people/author.proto";

message Article {
  string id = 1;
  optional string title = 2;
  string body = 3;
  google.protobuf.Timestamp published_at = 4;
  repeated string tags = 5;
  int64 words = 6;
  bytes raw = 7;
  enum Kind { NEWS = 0; OPINION = 1; }
  Kind kind = 8;
  map<int32, Author> authors = 9;
  google.protobuf.StringValue url = 10;
  google.protobuf.Struct more = 11;
  google.type.Date day = 12;
  google.protobuf.Duration reading = 13;
  confluent.type.Decimal price = 14;
  double score = 15;
  oneof place { string city = 16; Author person = 17; }
  map<bool, bytes> flags = 18;
  string HasField = 19;
  string ParseFromString = 20;
  message Inner { string text = 1; }
  repeated Article related = 21;
  google.protobuf.BytesValue seal = 22;
}
message Empty {}
"""
SCHEMA = Schema("PROTOBUF", TEXT, (AUTHOR,))
EMPTY = {
    "id": "", "body": "", "tags": [], "words": 0, "raw": "", "kind": "NEWS", "authors": {}, "score": 0.0, "flags": {},
    "HasField": "", "ParseFromString": "", "related": [],
}  # fmt: skip


@pytest.fixture(scope="module")
def decode() -> Decoder:
    """Reads articles."""
    return compile_schema(SCHEMA)


@pytest.fixture(scope="module")
def pool() -> Any:  # noqa: ANN401  google.protobuf has no types
    """All types of the schema."""
    return load_files(SCHEMA)[0]


@pytest.fixture
def article(pool: Any) -> Message:  # noqa: ANN401
    """An article without anything."""
    return GetMessageClass(pool.FindMessageTypeByName("acme.Article"))()


def proto(text: str) -> Schema:
    """A schema in proto3."""
    return Schema("PROTOBUF", f'syntax = "proto3"; {text}')


def described(name: str, imported: str) -> str:
    """A file that imports another one, as Confluent's Python client registers it."""
    return b64encode(FileDescriptorProto(name=name, dependency=[imported]).SerializeToString()).decode()


def test_indexes_that_java_and_python_read_differently_are_refused(decode: Decoder) -> None:
    """The message stands behind two maps, whose entries Confluent's client for Python counts as messages."""
    reason = refusal(lambda: decode(b"\x04\x00\x00\x0a\x01x"))
    assert "mean acme.Article.AuthorsEntry in Python" in reason
    assert "acme.Article.Inner in Java" in reason


def test_a_schema_that_confluents_client_registered_is_read() -> None:
    """It registers descriptors in base64, of the files that it imports too, and expects Google's to be known."""
    in_memory = SchemaRegistryClient.new_client({"url": "mock://", "ssl.ca.location": False})
    text = 'import "google/protobuf/timestamp.proto"; message A { string id = 1; google.protobuf.Timestamp at = 2; }'
    message = GetMessageClass(load_files(proto(text))[0].FindMessageTypeByName("A"))(id="a-1", at={"seconds": 1})
    value = ProtobufSerializer(type(message), in_memory)(message, SerializationContext("known", MessageField.VALUE))
    assert value is not None
    frame = read_frame(value, ())
    assert frame is not None
    registered = in_memory.get_schema(int(frame.reference.name))
    assert registered.schema_str is not None
    assert {"id": "a-1", "at": "1970-01-01T00:00:01Z"} == compile_schema(Schema("PROTOBUF", registered.schema_str))(
        frame.payload
    )


def test_confluents_files_are_those_of_its_own_client(tmp_path: Path) -> None:
    """Schemas import them without a reference. `scripts/record-schemas` compiles them again."""
    formats = Path(protobuf_schema.__file__).parent
    names = ("meta", "type/decimal", "type/variant", "types/decimal")
    sources = [f"confluent/{name}.proto" for name in names]
    folders = [f"--proto_path={folder}" for folder in (formats, Path(protoc.__file__).parent / "_proto")]
    assert protoc.main(["protoc", *folders, f"--descriptor_set_out={tmp_path / 'made'}", *sources]) == 0
    assert (formats / "confluent" / "known.binpb").read_bytes() == (tmp_path / "made").read_bytes()
    for file in FileDescriptorSet.FromString((tmp_path / "made").read_bytes()).file:
        module = f"confluent_kafka.schema_registry.{file.name.removesuffix('.proto').replace('/', '.')}_pb2"
        theirs = FileDescriptorProto()
        import_module(module).DESCRIPTOR.CopyToProto(theirs)
        theirs.ClearField("options")  # the name of a package in Go
        # Names in JSON follow from those in the file, so only some compilers write them.
        assert re.sub(r" *json_name: .*\n", "", str(theirs)) == re.sub(r" *json_name: .*\n", "", str(file))


def test_each_of_confluents_files_may_be_imported_without_a_reference() -> None:
    """Options say nothing about values."""
    text = """
        import "confluent/meta.proto";
        import "confluent/type/variant.proto";
        import "confluent/types/decimal.proto";
        message A {
          option (confluent.message_meta).doc = "an article";
          string id = 1 [(confluent.field_meta) = { tags: ["PII"] }];
          confluent.type.Decimal price = 2;
          confluent.type.Variant more = 3;
        }
    """
    schema = proto(text)
    pool = load_files(schema)[0]
    message = GetMessageClass(pool.FindMessageTypeByName("A"))(id="a-1", price={"value": b"\x0a", "scale": 1})
    document = compile_schema(schema)(b"\0" + message.SerializeToString())
    assert {"id": "a-1", "price": "1.0"} == document


def test_fields_with_presence_are_absent_and_the_others_there(decode: Decoder, article: Message) -> None:
    """A headline in proto3 has an empty body; that is not an article without a body."""
    assert EMPTY == decode(b"\x00")
    article.title, article.city = "", ""
    assert EMPTY | {"title": "", "city": ""} == decode(b"\x00" + article.SerializeToString())


def test_values_become_what_json_has(decode: Decoder, article: Message) -> None:
    """All kinds of fields, with the names of the .proto file."""
    article.id, article.body, article.words, article.raw, article.kind = "a-1", "Zoë \U0001f68b", 2**62, b"\x00\xff", 1
    article.published_at.FromJsonString("2024-01-02T03:04:05.060Z")
    article.tags.extend(["x", ""])
    article.authors[7].name = "K"
    article.url.value, article.seal.value, article.day.year = "u", b"s", 2024
    article.more.update({"a": [1.5, None, {"b": True}], "n": float("inf")})
    article.reading.FromJsonString("-1.5s")
    article.price.value, article.price.scale = (-105).to_bytes(2, "big", signed=True), 2
    article.score, article.person.name = float("nan"), "P"
    article.flags[True] = b"t"
    article.related.add(id="a-2")
    setattr(article, "HasField", "hf")  # noqa: B010  a method for the type checker
    expected = EMPTY | {
        "id": "a-1", "body": "Zoë \U0001f68b", "published_at": "2024-01-02T03:04:05.060Z", "tags": ["x", ""], "words": 2**62,
        "raw": "AP8=", "kind": "OPINION", "authors": {"7": {"name": "K"}}, "url": "u", "seal": "cw==",
        "more": {"a": [1.5, None, {"b": True}], "n": "Infinity"}, "day": {"year": 2024, "month": 0, "day": 0},
        "reading": "-1.500s", "price": "-1.05", "score": "NaN", "person": {"name": "P"}, "flags": {"true": "dA=="},
        "HasField": "hf", "related": [EMPTY | {"id": "a-2"}],
    }  # fmt: skip
    assert expected == decode(b"\x00" + article.SerializeToString())


def test_proto2_has_required_fields_groups_and_extensions() -> None:
    """A required field that is missing is refused; a group is a message; what is not known to the schema is left out."""
    text = """syntax = "proto2"; message A {
        required string id = 1; optional string title = 2 [default = "x"]; optional group More = 3 { optional int32 n = 4; }
        extensions 100 to max; } extend A { repeated A kin = 100; }"""
    decode = compile_schema(Schema("PROTOBUF", text))
    assert {"id": "a", "more": {"n": 5}} == decode(b"\x00\x0a\x01a\x1b\x20\x05\x1c\xa2\x06\x03\x0a\x01b")
    assert "a required field is missing" in refusal(lambda: decode(b"\x00"))


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"", "message indexes are damaged"),
        (b"\xff\xff\xff\xff\xff\xff", "message indexes are damaged"),
        (b"\x01", "negative or too large"),
        (b"\xce\x0f", "negative or too large"),
        (b"\x02\x04", "no message with the indexes [2]"),
        (b"\x02\x01", "no message with the indexes [-1]"),
        (b"\x04\x00\x63", "no message with the indexes [0, -50]"),
        (b"\x00\x07", "damaged, not UTF-8"),
        (b"\x00\x0a\x02\xc3(", "damaged, not UTF-8"),
        (b"\x00\x0a\x7fx", "damaged, not UTF-8"),
        (b"\x00\x22\x08\x08" + b"\xff" * 6 + b"\x7f", "years 1 to 9999"),
        (b"\x00\x72\x45\x0a\x41" + b"\x7f" * 65 + b"\x18\x01", "a decimal has 65 bytes"),
    ],
)
def test_a_damaged_message_is_refused(decode: Decoder, payload: bytes, said: str) -> None:
    """Unknown and negative indexes, text that is not UTF-8, values outside of their range."""
    assert said in refusal(lambda: decode(payload))


def test_text_of_proto2_that_is_not_utf_8_is_refused() -> None:
    """Its parser lets it through."""
    decode = compile_schema(
        Schema("PROTOBUF", 'syntax = "proto2"; message A { optional string id = 1; repeated string s = 2; }')
    )
    assert "not UTF-8" in refusal(lambda: decode(b"\x00\x0a\x02\xc3("))
    assert "not UTF-8" in refusal(lambda: decode(b"\x00\x12\x02\xc3("))


@pytest.mark.slow
def test_bombs_end_in_one_refusal_within_192_mb() -> None:
    """Submessages of two bytes, lists, maps and levels, each of 4 MB in a process with limited memory."""
    strings = " ".join(f"string f{number} = {number + 1};" for number in range(1_000))
    small = proto("message A { repeated B b = 1; map<int32, B> m = 2; } message B { optional int32 a = 1; }")
    empty = (b"\x0a\x00", MEGABYTES // 2)
    deep = proto("message A { A a = 1; }")
    extended = 'syntax = "proto2"; message A { extensions 1 to 9; } extend A { repeated B b = 1; } message B { %s }'
    extensions = Schema("PROTOBUF", extended % strings.replace("string", "optional string"))
    wide = proto(f"message A {{ repeated B b = 1; }} message B {{ {strings} }}")
    booleans = proto("message A { repeated bool s = 1; }")
    long = "n" * 450
    named = proto(
        f"message A {{ repeated B b = 1; repeated E e = 2; }} message B {{ int32 {long} = 1; }} enum E {{ {long} = 0; }}"
    )
    cases = {
        "MiB of memory": [
            Hostile("empty", small, [(b"\x00", 1), empty]),
            Hostile("entries of a map", small, [(b"\x00", 1), (b"\x12\x00", MEGABYTES // 2)]),
            Hostile("of themselves", proto("message A { repeated A a = 1; }"), [(b"\x00", 1), empty]),
            Hostile("empty and wide", wide, [(b"\x00", 1), empty]),
            Hostile("extensions", extensions, [(b"\x00", 1), empty]),
        ],
        "more than 500000 values": [
            Hostile("strings", proto("message A { repeated string s = 1; }"), [(b"\x00", 1), empty]),
            Hostile("booleans", booleans, [(b"\x00\x0a\x80\x80\x80\x02", 1), (b"\x01", MEGABYTES)]),
            Hostile("just parsed", small, [(b"\x00", 1), (b"\x0a\x00", 400_000)]),
        ],
        "more than 100 levels": [
            Hostile("groups", deep, [(b"\x00", 1), (b"\x0b", MEGABYTES)]),
        ],
        "more than 500000 fields": [Hostile("unknown fields", deep, [(b"\x00", 1), (b"\x12\x00", MEGABYTES // 2)])],
        "read: 0 fields": [Hostile("some unknown fields", deep, [(b"\x00", 1), (b"\x12\x00", 400_000)])],
        "repeats names of its schema": [
            Hostile("long names of fields", named, [(b"\x00", 1), (b"\x0a\x00", 200_000)]),
            Hostile("long names of an enum", named, [(b"\x00\x12\xc0\x9a\x0c", 1), (b"\x00", 200_000)]),
        ],
    }  # fmt: skip
    found = outcomes([case for group in cases.values() for case in group])
    for said, group in cases.items():
        for case in group:
            assert said in found[case.name], case.name


def test_a_chain_and_a_circle_of_many_types_are_read() -> None:
    """No function calls itself for each type, however many there are; only levels of a payload count."""
    for last in ("M0", "string"):
        fields = [f"M{number + 1}" for number in range(1_999)] + [last]
        text = " ".join(f"message M{number} {{ {kind} a = 1; }}" for number, kind in enumerate(fields))
        assert {"a": {"a": {}}} == compile_schema(proto(text))(b"\x00\x0a\x02\x0a\x00")


def test_a_message_that_a_record_is_the_first_to_name_keeps_little() -> None:
    """Whatever the types of a schema have in common is made once for all: here each contains all others."""
    count = 1_000
    text = " ".join(f"message M{number} {{ M{(number + 1) % count} a = 1; }}" for number in range(count))
    decode = compile_schema(proto(text))
    tracemalloc.start()
    try:
        for number in range(64, 164):
            assert {} == decode(b"\x02" + bytes([2 * number & 0x7F | 0x80, number >> 6]))
        kept_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert kept_bytes < 100 * 4_000


MESSAGES = " ".join(f"message M{number} {{}}" for number in range(5_001))
VALUES = " ".join(f"V{number} = {number};" for number in range(50_000))
OPTION = """import "google/protobuf/descriptor.proto"; message O { O o = 1; }
    extend google.protobuf.FileOptions { O o = 50000; }"""
MESSAGE_SET = "option message_set_wire_format = true; extensions 4 to max;"
CIRCLE = (
    NamedSchema("b.proto", described("b.proto", "c.proto")),
    NamedSchema("c.proto", described("c.proto", "b.proto")),
)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (proto('import "../../etc/passwd"; message A {}'), "../../etc/passwd"),
        (proto('import "/etc/passwd"; message A {}'), "File not found"),
        (proto('import "missing.proto"; message A {}'), "missing.proto: File not found"),
        (Schema("PROTOBUF", "syntax='proto3';", (NamedSchema("../../etc/x.proto", ""),)), "name of a reference"),
        (Schema("PROTOBUF", "syntax='proto3';", (NamedSchema("/etc/x.proto", ""),)), "name of a reference"),
        (Schema("PROTOBUF", "syntax='proto3';", (NamedSchema("a/../../x.proto", ""),)), "name of a reference"),
        (Schema("PROTOBUF", "syntax='proto3';", (NamedSchema("grpc_tools/__init__.py", ""),)), "name of a reference"),
        (Schema("PROTOBUF", "syntax='proto3';", (NamedSchema("--plugin.proto", "message X {}"),)), "declares no message"),
        (Schema("PROTOBUF", "syntax='proto3';", (NamedSchema("a\0.proto", "x"),)), "name of a reference"),
        (Schema("PROTOBUF", ""), "declares no message"),
        (Schema("PROTOBUF", "AAAA"), "neither the text of a .proto file nor a file descriptor in base64"),
        (proto("message A {" * 100_000), "recursion limit"),
        (proto(MESSAGES), "more than 5000 messages"),
        pytest.param(proto(f"message A {{ enum E {{ {VALUES} }} }}"), "more than 50000", marks=pytest.mark.slow),
        (proto(f"package {'p' * 300}; message A {{ int32 {'a' * 200} = 1; }}"), "more than 500 characters"),
        (proto(f"message A {{ message {'B' * 499} {{}} }}"), "more than 500 characters"),
        (proto(f"{OPTION} option (o) = {'{o ' * 200_000}{'}' * 200_000};"), "ended with signal"),
        (proto("message A {} message A {}"), '"A" is already defined'),
        (Schema("PROTOBUF", f"syntax='proto2'; message A {{ {MESSAGE_SET} }}"), "message sets"),
        (Schema("PROTOBUF", described("x", "b.proto"), CIRCLE), "in a circle"),
        (Schema("PROTOBUF", described("x", "b.proto")), "b.proto"),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_used_is_refused(schema: Schema, said: str) -> None:
    """Paths, circles, a million levels, what crashes protoc: with a reason that is short and names no place here."""
    reason = refusal(lambda: compile_schema(schema))
    assert said in reason
    assert len(reason) < 300
    assert "enricher-protoc" not in reason


@pytest.mark.skipif(sys.platform != "linux", reason="the GNU loader tells which processes get an environment")
def test_the_compiler_gets_nothing_of_our_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A secret of the worker is in no other process, and no variable makes the compiler's process run something else."""
    (tmp_path / "sitecustomize.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()", "utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setenv("LD_DEBUG", "statistics")
    monkeypatch.setenv("LD_DEBUG_OUTPUT", str(tmp_path / "loader"))
    compile_schema(proto("message A {}"))
    assert ["sitecustomize.py"] == [path.name for path in tmp_path.iterdir()]
    subprocess.run([sys.executable, "-c", ""], check=True)
    assert {"ran", "loader"} <= {path.name.partition(".")[0] for path in tmp_path.iterdir()}, (
        "a process with it is seen"
    )


@pytest.mark.parametrize("name", ["google", "grpc_tools"])
def test_the_compiler_runs_nothing_from_the_working_folder(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package there that has the compiler's name is not imported."""
    (tmp_path / name).mkdir()
    for module in ("__init__.py", "protoc.py"):
        (tmp_path / name / module).write_text("raise SystemExit(0)", "utf-8")
    monkeypatch.chdir(tmp_path)
    assert {} == compile_schema(proto("message A {}"))(b"\x00")


def test_a_compiler_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is trouble of this machine, not of the schema, which is tried again."""
    monkeypatch.setattr("enricher.worker.articles.formats.protobuf_schema._TIMEOUT_S", 0.001)
    with pytest.raises(TimeoutError, match="protoc took more than"):
        compile_schema(proto("message A {}"))


def test_a_schema_may_declare_googles_types_in_its_own_way() -> None:
    """What we would ask of a real timestamp is not there: the message is refused, not the process ended."""
    other = NamedSchema(
        "google/protobuf/timestamp.proto",
        'syntax = "proto3"; package google.protobuf; message Timestamp { string when = 1; }',
    )
    text = (
        'syntax = "proto3"; import "google/protobuf/timestamp.proto"; message A { google.protobuf.Timestamp at = 1; }'
    )
    decode = compile_schema(Schema("PROTOBUF", text, (other,)))
    assert {} == decode(b"\x00")
    assert "AttributeError" in refusal(lambda: decode(b"\x00\x0a\x00"))


@pytest.mark.slow
def test_defaults_and_texts_of_googles_types_are_not_multiplied() -> None:
    """A wrapper with a default of 100 kB in each of 100,000 items, and a duration whose seconds are 4 MB of text."""
    wrapper = NamedSchema(
        "google/protobuf/wrappers.proto",
        'syntax = "proto2"; package google.protobuf; '
        f'message StringValue {{ optional string value = 1 [default = "{"d" * 100_000}"]; }}',
    )
    duration = NamedSchema(
        "google/protobuf/duration.proto",
        'syntax = "proto3"; package google.protobuf; message Duration { string seconds = 1; int32 nanos = 2; }',
    )
    imported = 'syntax = "proto3"; import "google/protobuf/wrappers.proto";'
    wrapped = f"{imported} message A {{ repeated google.protobuf.StringValue s = 1; }}"
    lasting = (
        'syntax = "proto3"; import "google/protobuf/duration.proto"; message A { google.protobuf.Duration d = 1; }'
    )
    text = b"\x0a\x80\x80\x80\x02" + b"x" * MEGABYTES + b"\x10\xe8\x07"
    cases = [
        Hostile("defaults", Schema("PROTOBUF", wrapped, (wrapper,)), [(b"\x00", 1), (b"\x0a\x00", 100_000)]),
        Hostile("texts", Schema("PROTOBUF", lasting, (duration,)), [(b"\x00\x0a\x88\x80\x80\x02" + text, 1)]),
    ]
    refused = "value does not follow its Protobuf schema: TypeError"
    assert {"defaults": "read: 1 fields", "texts": refused} == outcomes(cases)


def test_white_space_takes_no_time() -> None:
    """However much there is before a schema's text, which may also be base64 with line breaks."""
    assert {} == compile_schema(Schema("PROTOBUF", " " * 900_000 + TEXT[:20] + "message A {}"))(b"\x00")
