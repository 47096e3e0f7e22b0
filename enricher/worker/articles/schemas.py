"""Schemas of inputs: how a record names one, what a registry knows of it, and what decodes its payloads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

from enricher.worker.contracts import SchemaType

Document = Any
"""The content of a payload, with the types of JSON: dictionaries, lists, text, numbers, booleans, None."""

Decoder = Callable[[bytes], Document]
"""Turns a payload, without its frame, into its document. Raises only InvalidArticle; memory and time are bounded."""

MAX_MESSAGES = 5_000
"""Messages in all files of a Protobuf schema."""

_DECODER_BYTES = 10_000
_AVRO_FACTOR = 25
"""The most bytes of a decoder for each character of its schema: fields, symbols and types of one character each."""
_PROTOBUF_FACTOR = 70
"""The same for Protobuf: values of an enum, whose full names are bounded in `protobuf_files`."""
_MESSAGE_BYTES = 3_000
"""The size of a class in Python, which Protobuf needs for each message."""


class SchemaRef(NamedTuple):
    """How a record names its schema: by Confluent's number or GUID, or by AWS Glue's UUID (both in lower case)."""

    kind: Literal["id", "guid", "glue"]
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"

    @property
    def in_registry(self) -> bool:
        """False for a schema of AWS Glue, which is in a folder."""
        return self.kind != "glue"


class NamedSchema(NamedTuple):
    """A schema that another one refers to by this name, such as a file of Protobuf."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as a registry keeps it, with all schemas that it refers to, directly or not, dependencies first."""

    type: SchemaType
    text: str
    references: tuple[NamedSchema, ...] = ()

    @property
    def decoder_bytes(self) -> int:
        """The most memory that its decoder takes, as measured with hostile schemas; ordinary ones take less."""
        texts = [self.text, *(each.text for each in self.references)]
        chars = sum(map(len, texts))
        if self.type == "AVRO":
            return _DECODER_BYTES + _AVRO_FACTOR * chars
        if self.type == "PROTOBUF":
            messages = min(MAX_MESSAGES, sum(map(_most_messages, texts)))
            return _DECODER_BYTES + _PROTOBUF_FACTOR * chars + _MESSAGE_BYTES * messages
        return _DECODER_BYTES


def _most_messages(text: str) -> int:
    """At least as many messages as a text of Protobuf declares. In a descriptor one takes 5 bytes, which are 7 in base64."""
    return text.count("{") + text.count("map") if "{" in text else len(text) // 7


class Compile(Protocol):
    """Makes the decoder of a schema's payloads. Blocks; raises InvalidArticle if the schema cannot be used."""

    def __call__(self, schema: Schema, /, *, glue: bool) -> Decoder:
        """`glue`: the payloads come from AWS Glue's frames, which name the message of a Protobuf schema differently."""


class Decoders(Protocol):
    """Decoders by the names of their schemas."""

    def decoder(self, reference: SchemaRef) -> Decoder:
        """The decoder for this schema. Does not block.

        Raises SchemaPending if the schema is not here yet; then it is being fetched. Raises InvalidArticle if there is no
        such schema, or if it cannot be used.
        """
