"""Collects what a schema refers to, directly or not: dependencies first, within bounds. No network here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from enricher.worker.articles.schemas import NamedSchema, Schema
from enricher.worker.contracts import SchemaType
from enricher.worker.registry.registry_errors import UnknownToRegistry, UnusableSchema

MAX_REFERENCES = 100
"""Each one is a request. Large Protobuf models of real companies have a few dozen files."""


class Pointer(NamedTuple):
    """A reference in a schema: the name that its text uses, and where the registry keeps that schema."""

    name: str
    subject: str
    version: int


class Found(NamedTuple):
    """One schema as the registry returns it."""

    type: SchemaType
    text: str
    pointers: tuple[Pointer, ...]


def resolve(root: Found, fetch: Callable[[Pointer], Found], *, max_bytes: int) -> Schema:
    """The schema with all its references; `fetch` gets one of them.

    Raises UnusableSchema for cycles, for two schemas of one name, for a reference that is not there, and beyond
    MAX_REFERENCES or `max_bytes` in all. Other errors of `fetch` pass through.
    """
    collected = _Collected(root.type, fetch, max_bytes)
    collected.count(root.text)
    for pointer in root.pointers:
        collected.add(pointer)
    named = tuple(NamedSchema(pointer.name, text) for pointer, text in collected.done.items())
    return Schema(root.type, root.text, named)


@dataclass(slots=True)
class _Collected:
    type: str
    fetch: Callable[[Pointer], Found]
    bytes_left: int
    done: dict[Pointer, str] = field(default_factory=dict)
    """Texts in the order in which they were completed, so dependencies come first."""
    begun: dict[str, Pointer] = field(default_factory=dict)
    """References that were begun, by name."""

    def count(self, text: str) -> None:
        # A lone surrogate cannot be encoded; the compiler of the format refuses it later.
        self.bytes_left -= len(text.encode(errors="replace"))
        if self.bytes_left < 0:
            raise UnusableSchema("it has more bytes than registry.max_schema_bytes allows, its references included")

    def add(self, pointer: Pointer) -> None:
        """Fetch a reference and what it refers to. Recursion is at most MAX_REFERENCES deep."""
        if pointer in self.done:
            return
        if self.begun.get(pointer.name) == pointer:
            raise UnusableSchema("its references form a cycle")
        if pointer.name in self.begun:
            raise UnusableSchema("it refers to two different schemas by one name")
        if len(self.begun) >= MAX_REFERENCES:
            raise UnusableSchema(f"it refers to more than {MAX_REFERENCES} other schemas")
        self.begun[pointer.name] = pointer
        try:
            found = self.fetch(pointer)
        except UnknownToRegistry:
            message = f"it refers to version {pointer.version} of a subject, which the registry does not have"
            raise UnusableSchema(message) from None
        if found.type != self.type:
            raise UnusableSchema("it refers to a schema of another type")
        self.count(found.text)
        for each in found.pointers:
            self.add(each)
        self.done[pointer] = found.text
