"""Classes of Protobuf messages, made by Google's own compiler as a team's build would make them."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc

if TYPE_CHECKING:
    from collections.abc import Mapping

    from support.mixed.layouts import Layout

_MADE: dict[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Compiled:
    """The messages of a file at its top, by their names in the order of the file."""

    pool: descriptor_pool.DescriptorPool
    messages: Mapping[str, Any]


def compiled(files: Mapping[str, str], main: str) -> Compiled:
    """Compile the file `main`; `files` are texts by name, those that it imports included."""
    with tempfile.TemporaryDirectory(prefix="enricher-protobuf-") as scratch:
        folder = Path(scratch)
        for name, text in files.items():
            (folder / name).write_text(text, encoding="utf-8")
        out = folder / "set"
        if protoc.main(["protoc", f"-I{folder}", "--include_imports", f"--descriptor_set_out={out}", main]):
            raise ValueError(f"{main} is no valid Protobuf; the compiler said why on standard error")
        found = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in found.file:
        pool.AddSerializedFile(file.SerializeToString())
    messages = pool.FindFileByName(main).message_types_by_name
    return Compiled(pool, {name: message_factory.GetMessageClass(each) for name, each in messages.items()})


def message_class(layout: Layout) -> Any:  # noqa: ANN401  a class that is made here
    """The class of the layout's message; the same one each time."""
    if layout.name not in _MADE:
        main = f"{layout.name}.proto"
        pool = compiled({**layout.protobuf_references, main: layout.protobuf}, main).pool
        _MADE[layout.name] = message_factory.GetMessageClass(pool.FindMessageTypeByName(layout.message))
    return _MADE[layout.name]
