"""Protobuf schemas as the comparison needs them, from the compiler's own descriptors."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from enricher.registry.compatibility.findings import SchemaUnusable

_FILE = "schema.proto"
_TIMEOUT_S = 60
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
    """A schema from the text of a `.proto` file. Raises SchemaUnusable. Runs the compiler in a process of its own.

    It may import Google's well-known types, and no other file.
    """
    from google.protobuf.descriptor_pb2 import FileDescriptorSet  # noqa: PLC0415  in the extra `registry`

    compiled = FileDescriptorSet.FromString(_compiled(text)).file[0]
    file = File(compiled.package)
    prefix = f".{compiled.package}." if compiled.package else "."
    for message in compiled.message_type:
        _add_message(file, message, "", prefix)
    for enum in compiled.enum_type:
        file.enums[enum.name] = _constants(enum)
    return file


@lru_cache(maxsize=64)
def _compiled(text: str) -> bytes:
    with tempfile.TemporaryDirectory(prefix="enricher-proto-") as folder:
        Path(folder, _FILE).write_text(text, "utf-8")
        output = Path(folder, "out")
        command = [sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={folder}"]
        command += [f"--proto_path={files('grpc_tools') / '_proto'}", f"--descriptor_set_out={output}", _FILE]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)  # noqa: S603  the compiler, on a file of ours
        except subprocess.TimeoutExpired:
            raise SchemaUnusable(f"the compiler did not end within {_TIMEOUT_S} s") from None
        if done.returncode or not output.exists():
            said = " ".join(line for line in done.stderr.split("\n") if "warning" not in line).replace(
                f"{_FILE}:", "line "
            )
            raise SchemaUnusable(f"the compiler refuses it: {said.strip() or f'it ended with code {done.returncode}'}")
        return output.read_bytes()


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
