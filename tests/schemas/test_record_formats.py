"""The schemas of records in JSON Schema, Avro and Protobuf, which must say the same; and their copies in the package."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from fastavro import parse_schema
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool

from enricher.worker.contracts import RECORD_MESSAGE, SchemaType, record_descriptors, record_schema

SCHEMAS = Path(__file__).parents[2] / "schemas"
NAME = "enriched-record.v1"
TYPES: dict[SchemaType, str] = {"AVRO": f"{NAME}.avsc", "PROTOBUF": f"{NAME}.proto", "JSON": f"{NAME}.schema.json"}

# Where the form differs from JSON, so the words do too.
OTHER_WORDS = {"schema_version", "metadata", "article", "field"}
OWN_NUMBERS = range(1000, 2000)


def json_schema() -> dict[str, Any]:
    """The JSON Schema as a document."""
    document: dict[str, Any] = json.loads((SCHEMAS / TYPES["JSON"]).read_text("utf-8"))
    return document


def avro_schema() -> dict[str, Any]:
    """The Avro schema as a document."""
    document: dict[str, Any] = json.loads((SCHEMAS / TYPES["AVRO"]).read_text("utf-8"))
    return document


def shipped() -> FileDescriptorSet:
    """The compiled schema in the package, which the last test compares with the schema."""
    return FileDescriptorSet.FromString(record_descriptors())


def compiled(folder: Path, *options: str) -> FileDescriptorSet:
    """What the compiler makes of the Protobuf schema."""
    out = folder / "compiled.binpb"
    arguments = (f"--proto_path={SCHEMAS}", f"--descriptor_set_out={out}", *options, TYPES["PROTOBUF"])
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *arguments], check=True)
    return FileDescriptorSet.FromString(out.read_bytes())


def test_the_avro_schema_says_what_the_json_schema_says() -> None:
    """Descriptions are equal; what may be absent in JSON may be null in Avro, and is by default."""
    document, avro = json_schema(), avro_schema()
    entity = next(field for field in avro["fields"] if field["name"] == "entities")["type"]["items"]
    pairs = [(avro, document), (entity, document["$defs"]["entity"])]
    for name in ("classifications", "embeddings", "regressions", "tasks", "transforms"):
        inner = next(field for field in avro["fields"] if field["name"] == name)["type"][1]["items"]
        pairs.append((inner, document["$defs"][name[:-1]]))
    for record, schema in pairs:
        assert schema["properties"].keys() == {field["name"] for field in record["fields"]}
        for field in record["fields"]:
            name, kind, given = field["name"], field["type"], schema["properties"][field["name"]]
            assert field["doc"]
            assert name in OTHER_WORDS or field["doc"] == given["description"].replace("Absent where", "Null where")
            may_lack = name not in schema["required"] or "null" in given.get("type", ())
            assert may_lack == isinstance(kind, list) == ("default" in field), name
            assert not may_lack or (["null"], None) == (kind[:-1], field["default"]), "null first, as it is the default"
    for name in ("model", "coverage"):
        inner = next(field for field in avro["fields"] if field["name"] == name)["type"]
        wanted = {key: value["description"] for key, value in document["properties"][name]["properties"].items()}
        assert wanted == {field["name"]: field["doc"] for field in inner["fields"]}


def test_the_protobuf_schema_says_what_the_json_schema_says(tmp_path: Path) -> None:
    """The comments of fields are the descriptions."""
    document = json_schema()
    (file,) = compiled(tmp_path, "--include_source_info").file
    comments = {tuple(at.path): " ".join(at.leading_comments.split()) for at in file.source_code_info.location}
    parts = [
        document["properties"],
        document["$defs"]["entity"]["properties"],
        document["properties"]["model"]["properties"],
        document["properties"]["coverage"]["properties"],
        *(
            document["$defs"][name]["properties"]
            for name in ("classification", "embedding", "regression", "task", "transform", "candidate")
        ),
        document["properties"]["catalogue"]["properties"],
    ]
    for number, (message, properties) in enumerate(zip(file.message_type, parts, strict=True)):
        for index, field in enumerate(message.field):
            comment = comments[4, number, 2, index]  # message_type, field: their numbers in a FileDescriptorProto
            assert comment
            assert field.name in OTHER_WORDS or comment == properties[field.name]["description"]


def test_the_avro_schema_is_one_and_has_a_namespace() -> None:
    """Names without a namespace would clash with those of other teams."""
    parse_schema(avro_schema())
    assert "enricher.v1" == avro_schema()["namespace"]


def test_numbers_of_fields_never_change() -> None:
    """Records are read by these numbers: a new field takes the next one, and none is used again."""
    (file,) = shipped().file
    numbers = {message.name: {field.name: field.number for field in message.field} for message in file.message_type}
    first = ["schema_version", "id", "language", "source", "url", "published_at", "entities", "model", "coverage"]
    record = [*first, "metadata", "body_separator", "article", "classifications", "embeddings", "tasks"]
    record += ["regressions", "version", "dropped_fields", "body_format", "transforms", "catalogue"]
    entity = ["field", "start", "end", "text", "label", "score", "task", "ids", "id", "why"]
    entity += ["source", "catalogue_name"]
    names = {"EnrichedRecord": record, "Entity": entity, "Model": ["name", "digest", "precision"]}
    names["Coverage"] = ["tokens", "windows", "truncated"]
    names["Classification"] = ["task", "label", "score"]
    names["Embedding"] = ["task", "dimensions", "pooling", "vector", "vector_float16"]
    names["Regression"] = ["task", "value"]
    names["Task"] = ["name", "kind", "model", "pooling", "coverage"]
    names["Transform"] = ["name", "package", "version"]
    names["Candidate"], names["Catalogue"] = ["id", "match"], ["digest", "generation"]
    assert {name: {field: n for n, field in enumerate(fields, 1)} for name, fields in names.items()} == numbers


def test_numbers_that_are_left_to_consumers_are_reserved_in_every_message() -> None:
    """A field of ours would otherwise collide with theirs one day."""
    (file,) = shipped().file
    for message in file.message_type:
        assert [(OWN_NUMBERS.start, OWN_NUMBERS.stop)] == [(each.start, each.end) for each in message.reserved_range]


def test_the_message_of_records_is_the_first_of_its_file() -> None:
    """The message indexes that the worker writes say so."""
    (file,) = shipped().file
    assert f"{file.package}.{file.message_type[0].name}" == RECORD_MESSAGE


@pytest.mark.parametrize("schema_type", TYPES)
def test_the_copy_in_the_package_is_the_schema(schema_type: SchemaType) -> None:
    """`scripts/record-schemas` makes it again."""
    name = TYPES[schema_type]
    assert (SCHEMAS / name).read_text("utf-8") == files("enricher.worker.contracts").joinpath(name).read_text("utf-8")
    assert "precision" in record_schema(schema_type)


def test_the_compiled_schema_in_the_package_is_up_to_date(tmp_path: Path) -> None:
    """`scripts/record-schemas` makes it again; no compiler is needed where the worker runs."""
    inside = shipped()
    assert compiled(tmp_path) == inside
    pool = DescriptorPool()
    pool.Add(inside.file[0])
    assert pool.FindMessageTypeByName(RECORD_MESSAGE)
