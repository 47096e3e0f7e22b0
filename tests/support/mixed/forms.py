"""The forms in which an article of a layout is written: serializers and frames.

Confluent's forms are written by Confluent's own serializers. Classes of Protobuf messages are made by Google's own compiler,
as a team's build would make them.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka.schema_registry import (
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    header_schema_id_serializer,
    prefix_schema_id_serializer,
)
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from grpc_tools import protoc

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

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


Document = dict[str, Any]
Headers = list[tuple[str, str | bytes | None]]


class Written(NamedTuple):
    """The value and headers of an input record."""

    value: bytes
    headers: Headers


_NUMBER = slice(1, 5)
"""Where a value with Confluent's prefix has the schema id."""


class Forms:
    """All forms of one layout. `topic` names the subjects."""

    def __init__(self, layout: Layout, registry_url: str, topic: str) -> None:
        self._layout = layout
        self._client = SchemaRegistryClient({"url": registry_url})
        self._topic = topic
        self._serializers: dict[str, Callable[[dict[str, Any]], Any]] = {
            "avro": self._avro,
            "protobuf": self._protobuf,
            "json": self._json,
        }
        self.by_name: dict[str, Callable[[Document, str], Written]] = {
            "JSON": lambda document, _: Written(json.dumps(document).encode(), []),
            "Avro, prefix": self._confluent("avro", header=False),
            "Avro, header": self._confluent("avro", header=True),
            "Protobuf, prefix": self._confluent("protobuf", header=False),
            "Protobuf, header": self._confluent("protobuf", header=True),
            "Protobuf, prefix, schema registered as text": self._protobuf_text(),
            "JSON Schema, prefix": self._confluent("json", header=False),
            "JSON Schema, header": self._confluent("json", header=True),
        }

    def _confluent(self, kind: str, *, header: bool) -> Callable[[Document, str], Written]:
        placed = {"schema.id.serializer": header_schema_id_serializer if header else prefix_schema_id_serializer}
        write = self._serializers[kind](placed)
        message = message_class(self._layout) if kind == "protobuf" else None
        topic = f"{self._topic}.{kind}"

        def form(document: Document, _event: str) -> Written:
            context = SerializationContext(topic, MessageField.VALUE, headers={})
            written = json_format.ParseDict(document, message()) if message else document
            value = write(written, context)
            return Written(value, list(dict(context.headers or {}).items()))

        return form

    def fresh_avro(self, edition: str) -> Callable[[Document, str], Written]:
        """Avro with a schema that no worker has met: it says another edition. Registered with the first document."""
        write = self._avro({}, edition)
        context = SerializationContext(f"{self._topic}.{edition}", MessageField.VALUE)
        return lambda document, _: Written(write(document, context), [])

    def _avro(self, settings: dict[str, Any], edition: str = "") -> Any:  # noqa: ANN401  a serializer
        references = []
        for name, schema in self._layout.avro_references.items():
            subject = f"{self._topic}.{name}"
            self._client.register_schema(subject, Schema(json.dumps(schema), "AVRO"))
            references.append(SchemaReference(name, subject, 1))
        schema = {**self._layout.avro, **({"doc": edition} if edition else {})}
        return AvroSerializer(self._client, Schema(json.dumps(schema), "AVRO", references), conf=settings)

    def _json(self, settings: dict[str, Any]) -> Any:  # noqa: ANN401  a serializer
        return JSONSerializer(json.dumps(self._layout.json_schema), self._client, conf=settings)

    def _protobuf(self, settings: dict[str, Any]) -> Any:  # noqa: ANN401  a serializer
        """Registers the schema by itself, in base64, with the files that it imports."""
        return ProtobufSerializer(
            message_class(self._layout), self._client, {**settings, "use.deprecated.format": False}
        )

    def _protobuf_text(self) -> Callable[[Document, str], Written]:
        """The same bytes under the id of a schema that was registered as text, as build tools register it.

        Confluent's serializer would ask for it with `format=serialized`, which Apicurio cannot answer.
        """
        references = []
        for name, text in self._layout.protobuf_references.items():
            subject = f"{self._topic}.text.{name}"
            self._client.register_schema(subject, Schema(text, "PROTOBUF"))
            references.append(SchemaReference(name, subject, 1))
        schema = Schema(self._layout.protobuf, "PROTOBUF", references)
        number = self._client.register_schema(f"{self._topic}.protobuf-text-value", schema)
        write = self._confluent("protobuf", header=False)

        def form(document: Document, event: str) -> Written:
            value = write(document, event).value
            return Written(value[: _NUMBER.start] + number.to_bytes(4, "big") + value[_NUMBER.stop :], [])

        return form
