"""Protobuf schemas as the comparison needs them, from the compiler's own descriptors."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from enricher.errors import InvalidArticle
from enricher.worker.articles.formats.protobuf_files import load_files
from enricher.worker.articles.schemas import Schema
from support.compatibility.findings import SchemaUnusable

_REQUIRED, _REPEATED = 2, 3
_GROUP, _MESSAGE, _ENUM = 10, 11, 14
_WIRE_GROUPS = {
    **dict.fromkeys(("int32", "int64", "uint32", "uint64", "bool", "enum"), "varint"),
    **dict.fromkeys(("sint32", "sint64"), "zigzag"),
    **dict.fromkeys(("fixed32", "sfixed32"), "fixed32"),
    **dict.fromkeys(("fixed64", "sfixed64"), "fixed64"),
    **dict.fromkeys(("string", "bytes"), "bytes"),
}
"""Types within a group read each other's bytes (protobuf.dev, "Updating A Message Type")."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field. `kind`: a scalar's name, `enum`, `message`, or `map<...>`; `type_name`: of messages and enums.

    `label`: `required`, `repeated`, `optional` (presence is tracked) or empty. `oneof`: the name of its oneof, or empty.
    """

    number: int
    name: str
    kind: str
    type_name: str
    label: str
    oneof: str

    @property
    def shown(self) -> str:
        """Its type as it is written in a file."""
        kind = self.type_name if self.kind in {"message", "enum"} else self.kind
        return f"{self.label} {kind}".strip()

    @property
    def wire(self) -> str:
        """The types with the same value read each other's bytes."""
        return f"message {self.type_name}" if self.kind == "message" else _WIRE_GROUPS.get(self.kind, self.kind)


@dataclass(frozen=True, slots=True)
class Message:
    """Fields by number, and what is reserved."""

    fields: dict[int, Field]
    reserved_names: frozenset[str]
    reserved_numbers: tuple[range, ...]


@dataclass(slots=True)
class File:
    """Messages and enums (number -> name) by their names without the package, nested ones as `Outer.Inner`."""

    package: str
    messages: dict[str, Message] = field(default_factory=dict)
    enums: dict[str, dict[int, str]] = field(default_factory=dict)


def parse(text: str) -> File:
    """A schema from the text of a `.proto` file. Raises SchemaUnusable. Runs the worker's own compiler.

    It may import Google's well-known types, and no other file.
    """
    compiled = _compiled(text)
    file = File(compiled.package)
    prefix = f".{compiled.package}." if compiled.package else "."
    for message in compiled.message_type:
        _add_message(file, message, "", prefix)
    for enum in compiled.enum_type:
        file.enums[enum.name] = _constants(enum)
    return file


@lru_cache(maxsize=64)
def _compiled(text: str) -> Any:  # noqa: ANN401  a descriptor, which has no types
    try:
        return load_files(Schema("PROTOBUF", text))[1]
    except InvalidArticle as error:
        raise SchemaUnusable(f"the compiler refuses it: {error}") from None


def _add_message(file: File, message: Any, outer: str, prefix: str) -> None:  # noqa: ANN401  a descriptor, which has no types
    name = f"{outer}{message.name}"
    entries = {f"{prefix}{name}.{nested.name}": nested for nested in message.nested_type if nested.options.map_entry}
    file.messages[name] = Message(
        {each.number: _field(each, message, entries, prefix) for each in message.field},
        frozenset(message.reserved_name),
        tuple(range(each.start, each.end) for each in message.reserved_range),
    )
    for nested in message.nested_type:
        if not nested.options.map_entry:
            _add_message(file, nested, f"{name}.", prefix)
    for enum in message.enum_type:
        file.enums[f"{name}.{enum.name}"] = _constants(enum)


def _field(found: Any, message: Any, entries: dict[str, Any], prefix: str) -> Field:  # noqa: ANN401  descriptors
    in_oneof = found.HasField("oneof_index") and not found.proto3_optional
    label = "required" if found.label == _REQUIRED else "repeated" if found.label == _REPEATED else ""
    kind = _kind(found)
    if found.type_name in entries:
        key, value = (_field(each, entries[found.type_name], {}, prefix) for each in entries[found.type_name].field)
        kind, label = f"map<{key.shown}, {value.shown}>", ""
    return Field(
        found.number,
        found.name,
        kind,
        found.type_name.removeprefix(prefix),
        "optional" if found.proto3_optional else label,
        message.oneof_decl[found.oneof_index].name if in_oneof else "",
    )


def _kind(found: Any) -> str:  # noqa: ANN401  a descriptor
    if found.type in {_MESSAGE, _GROUP}:
        return "message"
    if found.type == _ENUM:
        return "enum"
    return str(found.DESCRIPTOR.fields_by_name["type"].enum_type.values_by_number[found.type].name[5:].lower())


def _constants(enum: Any) -> dict[int, str]:  # noqa: ANN401  a descriptor
    constants: dict[int, str] = {}
    for value in enum.value:
        constants.setdefault(value.number, value.name)  # the first of several names
    return constants
