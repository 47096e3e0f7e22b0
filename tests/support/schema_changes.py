"""Changes of the schema of records in each format: six that the promise allows, and six that it does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from enricher.worker.contracts import SchemaType

SCHEMAS = Path(__file__).parents[2] / "schemas"
FILES: dict[SchemaType, str] = {
    "AVRO": "enriched-record.v1.avsc",
    "PROTOBUF": "enriched-record.v1.proto",
    "JSON": "enriched-record.v1.schema.json",
}
Document = dict[str, Any]
Edits = dict[str, Callable[[Document], object]]
"""How a document is changed, by the name of the change."""


def contract(schema_type: SchemaType) -> str:
    """The schema of records, as it is today."""
    return (SCHEMAS / FILES[schema_type]).read_text("utf-8")


@dataclass(frozen=True, slots=True)
class Change:
    """A changed schema of records. `allowed`: by our promise and by the level that we recommend for a registry."""

    name: str
    schema_type: SchemaType
    allowed: bool
    text: str

    def __str__(self) -> str:
        return f"{self.schema_type.lower()}: {self.name}"


def changes(schema_type: SchemaType) -> list[Change]:
    """The six allowed ones, then the six breaking ones."""
    texts = _protobuf() if schema_type == "PROTOBUF" else {
        name: _edited(schema_type, edit) for name, edit in {"AVRO": AVRO, "JSON": JSON}[schema_type].items()
    }  # fmt: skip
    return [Change(name, schema_type, number < 6, text) for number, (name, text) in enumerate(texts.items())]


def all_changes() -> list[Change]:
    """Those of every format."""
    return [change for schema_type in FILES for change in changes(schema_type)]


def _edited(schema_type: SchemaType, edit: Callable[[Document], object]) -> str:
    document = json.loads(contract(schema_type))
    edit(document)
    return json.dumps(document, indent=2)


def _field(record: Document, name: str) -> Document:
    found: Document = next(field for field in record["fields"] if field["name"] == name)
    return found


def _entity(record: Document) -> Document:
    found: Document = _field(record, "entities")["type"]["items"] if "fields" in record else record["$defs"]["entity"]
    return found


OBJECT = {"type": "object", "properties": {"x": {"type": "number"}}}
JSON: Edits = {
    "a new optional text": lambda it: it["properties"].update(later={"type": "string"}),
    "a new optional object": lambda it: it["properties"].update(later=OBJECT),
    "a new optional field of an entity": lambda it: _entity(it)["properties"].update(
        later={"type": ["string", "null"]}
    ),
    "a new optional field of any type": lambda it: it["properties"].update(later={"description": "Anything."}),
    "other descriptions": lambda it: it.update(description="Other words.", title="Another title"),
    "a definition where its reference stood": lambda it: it["properties"]["entities"].update(items=_entity(it)),
    "a field removed": lambda it: it["properties"].pop("url"),
    "a field renamed": lambda it: it["properties"].update(link=it["properties"].pop("url")),
    "another type": lambda it: _entity(it)["properties"]["start"].update(type="string"),
    "a required field made optional": lambda it: it["required"].remove("coverage"),
    "a new value of a closed list": lambda it: _entity(it)["properties"]["field"]["enum"].append("summary"),
    "a limit loosened": lambda it: _entity(it)["properties"]["score"].update(maximum=100),
}
OPTIONAL = {"name": "later", "type": ["null", "string"], "default": None}
NESTED = {"type": "record", "name": "Later", "fields": [{"name": "x", "type": "double"}]}
AVRO: Edits = {
    "a new optional text": lambda it: it["fields"].append(OPTIONAL),
    "a new optional record": lambda it: it["fields"].append(OPTIONAL | {"type": ["null", NESTED]}),
    "a new optional field of an entity": lambda it: _entity(it)["fields"].append(OPTIONAL),
    "a new number with a default": lambda it: it["fields"].insert(0, {"name": "later", "type": "long", "default": 0}),
    "other descriptions": lambda it: it.update(doc="Other words."),
    "another order of fields": lambda it: it["fields"].append(it["fields"].pop(0)),
    "a field without a default removed": lambda it: it["fields"].remove(_field(it, "entities")),
    "a field renamed": lambda it: _field(it, "id").update(name="article_id"),
    "another type": lambda it: _field(_entity(it), "start").update(type="string"),
    "a wider type, which old readers cannot read": lambda it: _field(_entity(it), "start").update(type="long"),
    "a new field without a default": lambda it: it["fields"].append({"name": "later", "type": "string"}),
    "a required field that may be null": lambda it: _field(it, "id").update(type=["null", "string"]),
}


def _protobuf() -> dict[str, str]:
    text = contract("PROTOBUF")

    def replaced(old: str, new: str) -> str:
        assert text.count(old) == 1, old
        return text.replace(old, new)

    def with_field(line: str, more: str = "") -> str:
        last = "  repeated Task tasks = 15;\n"
        return replaced(last, f"{last}  {line}\n") + more

    of_entity, of_coverage = "  optional string task = 7;\n", "message Coverage {"
    one_of = "  oneof one {\n    string language = 3;\n    string joined = 5;\n  }"
    return {
        "a new optional text": with_field("optional string later = 22;"),
        "a new message": with_field("Later later = 22;", "message Later {\n  double x = 1;\n}\n"),
        "a new optional field of an entity": replaced(of_entity, f"{of_entity}  optional string later = 13;\n"),
        "a new list": with_field("repeated int64 later = 22;"),
        "other comments": text.replace("// ", "// Note: "),
        "a new enum": with_field("Kind later = 22;", "enum Kind {\n  KIND_UNSPECIFIED = 0;\n}\n"),
        "another type": replaced("int32 start = 2;", "string start = 2;"),
        "another way to write a number": replaced("int32 tokens = 1;", "sint32 tokens = 1;"),
        "a message renamed": replaced(of_coverage, "message Seen {").replace("Coverage coverage", "Seen coverage"),
        "another package": replaced("package enricher.v1;", "package enricher.v2;"),
        "a message where a text was": replaced("string id = 2;", "Model id = 2;"),
        "two fields in one oneof": replaced("  optional string language = 3;", one_of).replace(
            "  optional string url = 5;\n", ""
        ),
    }
