"""Changes of the schema of records in each format: six that the promise allows, and six that it does not."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
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
    makers: dict[SchemaType, Callable[[], Iterator[tuple[str, bool, str]]]] = {
        "AVRO": _avro,
        "PROTOBUF": _protobuf,
        "JSON": _json,
    }
    return [Change(name, schema_type, allowed, text) for name, allowed, text in makers[schema_type]()]


def all_changes() -> list[Change]:
    """Those of every format."""
    return [change for schema_type in FILES for change in changes(schema_type)]


def without_url(schema_type: SchemaType) -> str:
    """The Avro or Protobuf schema without its optional field `url`, its number and name reserved."""
    text = contract(schema_type)
    if schema_type == "PROTOBUF":
        return text.replace("  optional string url = 5;", '  reserved 5;\n  reserved "url";')
    return _edited(json.loads(text), lambda it: it["fields"].remove(_field(it, "url")))


def _edited(original: Document, edit: Callable[[Document], object]) -> str:
    document = copy.deepcopy(original)
    edit(document)
    return json.dumps(document, indent=2)


def _json() -> Iterator[tuple[str, bool, str]]:
    record: Document = json.loads(contract("JSON"))
    entity = ("$defs", "entity")

    def changed(edit: Callable[[Document], object]) -> str:
        return _edited(record, edit)

    yield "a new optional text", True, changed(lambda it: it["properties"].update(later={"type": "string"}))
    yield (
        "a new optional object",
        True,
        changed(lambda it: it["properties"].update(later={"type": "object", "properties": {"x": {"type": "number"}}})),
    )
    yield (
        "a new optional field of an entity",
        True,
        changed(lambda it: it[entity[0]][entity[1]]["properties"].update(later={"type": ["string", "null"]})),
    )
    yield (
        "a new optional field of any type",
        True,
        changed(lambda it: it["properties"].update(later={"description": "Anything."})),
    )
    yield "other descriptions", True, changed(lambda it: it.update(description="Other words.", title="Another title"))
    yield (
        "a definition where its reference stood",
        True,
        changed(lambda it: it["properties"]["entities"].update(items=it["$defs"]["entity"])),
    )
    yield "a field removed", False, changed(lambda it: it["properties"].pop("url"))
    yield "a field renamed", False, changed(lambda it: it["properties"].update(link=it["properties"].pop("url")))
    yield "another type", False, changed(lambda it: it["$defs"]["entity"]["properties"]["start"].update(type="string"))
    yield "a required field made optional", False, changed(lambda it: it["required"].remove("coverage"))
    yield (
        "a new value of a closed list",
        False,
        changed(lambda it: it["$defs"]["entity"]["properties"]["field"]["enum"].append("summary")),
    )
    yield (
        "a limit loosened",
        False,
        changed(lambda it: it["$defs"]["entity"]["properties"]["score"].update(maximum=100)),
    )


def _field(record: Document, name: str) -> Document:
    found: Document = next(field for field in record["fields"] if field["name"] == name)
    return found


def _avro() -> Iterator[tuple[str, bool, str]]:
    record: Document = json.loads(contract("AVRO"))
    optional = {"name": "later", "type": ["null", "string"], "default": None}
    nested = {"type": "record", "name": "Later", "fields": [{"name": "x", "type": "double"}]}

    def changed(edit: Callable[[Document], object]) -> str:
        return _edited(record, edit)

    def entity(it: Document) -> Document:
        found: Document = _field(it, "entities")["type"]["items"]
        return found

    yield "a new optional text", True, changed(lambda it: it["fields"].append(optional))
    yield (
        "a new optional record",
        True,
        changed(lambda it: it["fields"].append({"name": "later", "type": ["null", nested], "default": None})),
    )
    yield "a new optional field of an entity", True, changed(lambda it: entity(it)["fields"].append(optional))
    yield (
        "a new number with a default",
        True,
        changed(lambda it: it["fields"].insert(0, {"name": "later", "type": "long", "default": 0})),
    )
    yield "other descriptions", True, changed(lambda it: it.update(doc="Other words."))
    yield "another order of fields", True, changed(lambda it: it["fields"].append(it["fields"].pop(0)))
    yield "a field without a default removed", False, changed(lambda it: it["fields"].remove(_field(it, "entities")))
    yield "a field renamed", False, changed(lambda it: _field(it, "id").update(name="article_id"))
    yield "another type", False, changed(lambda it: _field(entity(it), "start").update(type="string"))
    yield "a wider type, which old readers cannot read", False, changed(
        lambda it: _field(entity(it), "start").update(type="long")
    )  # fmt: skip
    yield (
        "a new field without a default",
        False,
        changed(lambda it: it["fields"].append({"name": "later", "type": "string"})),
    )
    yield (
        "a required field that may be null",
        False,
        changed(lambda it: _field(it, "id").update(type=["null", "string"])),
    )


def _protobuf() -> Iterator[tuple[str, bool, str]]:
    text = contract("PROTOBUF")
    head, marker, rest = text.partition("message Entity {")

    def with_field(line: str, more: str = "") -> str:
        last = "  repeated Task tasks = 15;\n"
        assert last in text
        return text.replace(last, f"{last}  {line}\n") + more

    def replaced(old: str, new: str, *, inside: str = text) -> str:
        assert inside.count(old) == 1, old
        return inside.replace(old, new)

    yield "a new optional text", True, with_field("optional string later = 22;")
    yield "a new message", True, with_field("Later later = 22;", "message Later {\n  double x = 1;\n}\n")
    yield (
        "a new optional field of an entity",
        True,
        head
        + marker
        + rest.replace("optional string task = 7;", "optional string task = 7;\n  optional string later = 13;"),
    )
    yield "a new list", True, with_field("repeated int64 later = 22;")
    yield "other comments", True, text.replace("// ", "// Note: ")
    yield "a new enum", True, with_field("Kind later = 22;", "enum Kind {\n  KIND_UNSPECIFIED = 0;\n}\n")
    yield "another type", False, replaced("int32 start = 2;", "string start = 2;")
    yield "another way to write a number", False, replaced("int32 tokens = 1;", "sint32 tokens = 1;")
    yield "a message renamed", False, replaced("message Coverage {", "message Seen {").replace(
        "Coverage coverage", "Seen coverage"
    )  # fmt: skip
    yield "another package", False, replaced("package enricher.v1;", "package enricher.v2;")
    yield "a message where a text was", False, replaced("string id = 2;", "Model id = 2;")
    yield "two fields in one oneof", False, replaced(
        "  optional string language = 3;", "  oneof one {\n    string language = 3;\n    string joined = 5;\n  }"
    ).replace("  optional string url = 5;\n", "")  # fmt: skip
