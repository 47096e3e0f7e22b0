"""The schemas of records, as files: copies of `schemas/`, because an installed worker has only the files of its package.

Data only, no code that reads or writes records: the worker and the verifier share these files, and nothing else.
`scripts/record-schemas` makes the copies, and compiles the Protobuf schema, so that no compiler is needed at the start.
"""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Literal, TypeGuard, get_args

SchemaFormat = Literal["avro", "protobuf", "json-schema"]
"""The formats of records that have a schema in a registry."""

RecordFormat = Literal["json", SchemaFormat]
"""The formats of records, as `output.format` names them."""

PlainFormat = Literal["json"]
"""The formats of articles whose values name no schema, as `articles.format` names them."""

SchemaType = Literal["AVRO", "PROTOBUF", "JSON"]
"""The types of schemas, as registries name them."""

SCHEMA_TYPES: dict[SchemaFormat, SchemaType] = {"avro": "AVRO", "protobuf": "PROTOBUF", "json-schema": "JSON"}

RECORD_MESSAGE = "enricher.v1.EnrichedRecord"
"""The message of the Protobuf schema. It is the first one of its file, so its message indexes are `[0]`."""

_RECORD = "enriched-record.v1"
_SUFFIXES: dict[SchemaType, str] = {"AVRO": "avsc", "PROTOBUF": "proto", "JSON": "schema.json"}
_DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def is_schema_type(name: object) -> TypeGuard[SchemaType]:
    """Whether this is the name of a type that we know."""
    return name in get_args(SchemaType)


def record_schema(schema_type: SchemaType) -> str:
    """The schema of enriched records, version 1, as it is registered.

    The JSON Schema is registered as draft 7, with which it is valid too: Apicurio's registry (3.3) compares no later draft,
    and no schema whose `$id` is a URN. Nothing else differs, so both forms accept the same records.
    """
    text = files(__name__).joinpath(f"{_RECORD}.{_SUFFIXES[schema_type]}").read_text("utf-8")
    if schema_type != "JSON":
        return text
    schema = json.loads(text)
    del schema["$id"]
    return json.dumps(schema | {"$schema": _DRAFT_7}, indent=2, ensure_ascii=False)


def record_descriptors() -> bytes:
    """The compiled Protobuf schema: a `FileDescriptorSet` with one file."""
    return files(__name__).joinpath(f"{_RECORD}.binpb").read_bytes()
