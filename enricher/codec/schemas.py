"""Schemas of inputs: how a record names one, what a registry knows of it, and what reads a payload by it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

Document = Any
"""What a payload says, as JSON would: dictionaries, lists, text, numbers, booleans, None."""

Decoder = Callable[[bytes], Document]
"""A payload, without its frame, to its document. Raises InvalidArticle and nothing else; memory and time are bounded."""


class SchemaRef(NamedTuple):
    """How a record names its schema: Confluent's number or GUID, or the UUID of AWS Glue (both in lower case)."""

    kind: Literal["id", "guid", "glue"]
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class NamedSchema(NamedTuple):
    """A schema that another one refers to by this name, such as a file of Protobuf."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as a registry keeps it, with everything that it refers to, directly or not, dependencies first."""

    type: Literal["AVRO", "PROTOBUF", "JSON"]
    text: str
    references: tuple[NamedSchema, ...] = ()


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
