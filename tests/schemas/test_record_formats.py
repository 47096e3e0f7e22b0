"""The schemas of records in JSON Schema, Avro and Protobuf, which must say the same; and their copies in the package."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from fastavro import parse_schema
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool

from enricher.worker.contracts import RECORD_MESSAGE, SchemaType, record_descriptors, record_schema

SCHEMAS = Path(__file__).parents[2] / "schemas"
NAME = "enriched-record.v1"
TYPES: dict[SchemaType, str] = {"AVRO": f"{NAME}.avsc", "PROTOBUF": f"{NAME}.proto", "JSON": f"{NAME}.schema.json"}

# Where the form differs from JSON, so the words do too.
OTHER_WORDS = {"schema_version", "metadata", "article", "field"}
OWN_NUMBERS = range(1000, 2000)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a record, in words that all three kinds of schema share. `type`: of it, or of the items of a list."""

    type: str
    required: bool
    list: bool = False


Fields = dict[str, Field]
"""By path, such as `entities.start`."""


def json_schema() -> dict[str, Any]:
    """The JSON Schema as a document."""
    document: dict[str, Any] = json.loads((SCHEMAS / TYPES["JSON"]).read_text("utf-8"))
    return document


def avro_schema() -> dict[str, Any]:
    """The Avro schema as a document."""
    document: dict[str, Any] = json.loads((SCHEMAS / TYPES["AVRO"]).read_text("utf-8"))
    return document


def of_json(schema: dict[str, Any], definitions: dict[str, Any], path: str = "") -> Fields:
    """The fields of an object. An object without properties is a map of metadata, or a whole document."""
    fields: Fields = {}
    for name, given in schema["properties"].items():
        place, is_list = f"{path}{name}", given.get("type") == "array"
        item = given["items"] if is_list else given
        if "$ref" in item:
            item = definitions[item["$ref"].rpartition("/")[2]]
        kind = {"metadata": "texts", "article": "string"}.get(place) or item.get("type")
        nullable = isinstance(kind, list)
        if nullable:
            assert ["object", "null"] == kind
            kind = "object"
        if "contentEncoding" in item:
            kind = "bytes"
        if kind is None:
            kind = "integer" if isinstance(item.get("const"), int) else "string"  # a constant, or one of several texts
        fields[place] = Field(kind, name in schema["required"] and not nullable, is_list)
        if "properties" in item:
            fields |= of_json(item, definitions, f"{place}.")
    return fields


AVRO_TYPES = {"int": "integer", "long": "integer", "double": "number", "float": "number"}


def of_avro(schema: dict[str, Any], path: str = "", named: dict[str, Any] | None = None) -> Fields:
    """The fields of a record. An optional one is a union with null, which is also its default.

    `named`: the records that were declared before, which later fields name.
    """
    fields: Fields = {}
    named = {} if named is None else named
    for given in schema["fields"]:
        place, kind = f"{path}{given['name']}", given["type"]
        optional = isinstance(kind, list)
        if optional:
            assert (["null"], None) == (kind[:-1], given["default"]), "null first, because it is the default"
            kind = kind[-1]
        else:
            assert "default" not in given
        is_list = isinstance(kind, dict) and kind["type"] == "array"
        item = kind["items"] if is_list else kind
        if isinstance(item, str):
            item = named.get(item, item)
        fields |= {place: Field(avro_type(item), not optional, is_list)}
        if isinstance(item, dict) and item["type"] == "record":
            named[item["name"]] = item
            fields |= of_avro(item, f"{place}.", named)
    return fields


def avro_type(kind: Any) -> str:  # noqa: ANN401  text or object
    """The name of an Avro type in our words."""
    if isinstance(kind, str):
        return AVRO_TYPES.get(kind, kind)
    if kind["type"] == "map":
        assert "string" == kind["values"]
        return "texts"
    assert "record" == kind["type"]
    return "object"


EMPTY_LISTS = {
    "classifications",
    "dropped_fields",
    "embeddings",
    "embeddings.vector",
    "entities.ids",
    "regressions",
    "tasks",
    "transforms",
}
"""Lists that may be absent: in Protobuf they are empty then."""

PROTOBUF_TYPES = {
    FieldDescriptorProto.TYPE_INT32: "integer",
    FieldDescriptorProto.TYPE_INT64: "integer",
    FieldDescriptorProto.TYPE_DOUBLE: "number",
    FieldDescriptorProto.TYPE_FLOAT: "number",
    FieldDescriptorProto.TYPE_STRING: "string",
    FieldDescriptorProto.TYPE_BYTES: "bytes",
    FieldDescriptorProto.TYPE_BOOL: "boolean",
    FieldDescriptorProto.TYPE_MESSAGE: "object",
}


def of_protobuf(file: FileDescriptorProto, message: DescriptorProto, path: str = "") -> Fields:
    """The fields of a message. One that may be absent is `optional`, a map is empty then."""
    messages = {f".{file.package}.{each.name}": each for each in file.message_type}
    fields: Fields = {}
    for given in message.field:
        place, repeated = f"{path}{given.name}", given.label == FieldDescriptorProto.LABEL_REPEATED
        inner = messages.get(given.type_name)
        if repeated and inner is None and given.type == FieldDescriptorProto.TYPE_MESSAGE:
            entry = next(each for each in message.nested_type if given.type_name.endswith(f".{each.name}"))
            assert ["string", "string"] == [PROTOBUF_TYPES[field.type] for field in entry.field]
            fields[place] = Field("texts", required=False)
            continue
        required = not given.proto3_optional and place not in EMPTY_LISTS
        fields[place] = Field(PROTOBUF_TYPES[given.type], required, repeated)
        if inner:
            fields |= of_protobuf(file, inner, f"{place}.")
    return fields


def shipped() -> FileDescriptorSet:
    """The compiled schema in the package, which the last test compares with the schema."""
    return FileDescriptorSet.FromString(record_descriptors())


def compiled(folder: Path, *options: str) -> FileDescriptorSet:
    """What the compiler makes of the Protobuf schema."""
    out = folder / "compiled.binpb"
    arguments = (f"--proto_path={SCHEMAS}", f"--descriptor_set_out={out}", *options, TYPES["PROTOBUF"])
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *arguments], check=True)
    return FileDescriptorSet.FromString(out.read_bytes())


def test_the_three_schemas_have_the_same_fields() -> None:
    """Names, types, and which must be there; a field that one of them lacks would be lost in that format."""
    document = json_schema()
    wanted = of_json(document, document["$defs"])
    (file,) = shipped().file
    assert wanted == of_avro(avro_schema())
    assert wanted == of_protobuf(file, file.message_type[0])
    assert {"entities.start", "model.digest", "metadata", "article"} < wanted.keys()


def test_the_avro_schema_says_what_the_json_schema_says() -> None:
    """Descriptions are equal; what is absent in JSON is null in Avro."""
    document, avro = json_schema(), avro_schema()
    entity = next(field for field in avro["fields"] if field["name"] == "entities")["type"]["items"]
    pairs = [(avro, document["properties"]), (entity, document["$defs"]["entity"]["properties"])]
    for name in ("classifications", "embeddings", "regressions", "tasks"):
        inner = next(field for field in avro["fields"] if field["name"] == name)["type"][1]["items"]
        pairs.append((inner, document["$defs"][name[:-1]]["properties"]))
    for record, properties in pairs:
        for field in record["fields"]:
            description = properties[field["name"]]["description"]
            assert field["doc"]
            assert field["name"] in OTHER_WORDS or field["doc"] == description.replace("Absent where", "Null where")
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
