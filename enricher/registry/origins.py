"""Where schemas come from: a registry and what is kept of it on disk, and a folder of schemas of AWS Glue."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from enricher.codec.schemas import Schema, SchemaRef
from enricher.registry.errors import UnknownToRegistry, UnusableSchema
from enricher.registry.glue import GlueFolder
from enricher.registry.store import SchemaStore


class Registry(Protocol):
    """What is needed of a `RegistryClient`."""

    def schema(self, reference: SchemaRef) -> Schema:
        """Blocks. Raises a RegistryError."""


@dataclass(frozen=True, slots=True)
class Origins:
    """None where the settings name no such place. `store` keeps schemas of `registry`."""

    registry: Registry | None = None
    store: SchemaStore | None = None
    glue: GlueFolder | None = None

    def kept(self, reference: SchemaRef) -> Schema | None:
        """The schema from disk."""
        return self.store.find(reference) if self.store and reference.kind != "glue" else None

    def fetch(self, reference: SchemaRef) -> Schema:
        """The schema from where it belongs; keeps it. Blocks. Raises a RegistryError."""
        if reference.kind == "glue":
            if self.glue is None:
                raise UnusableSchema("registry.glue_folder is not set")
            return self.glue.schema(reference.name)
        if self.registry is None:
            raise UnusableSchema("registry.url is not set")
        schema = self.registry.schema(reference)
        return self.store.keep(reference, schema) if self.store else schema

    def changed(self, reference: SchemaRef) -> bool:
        """Whether the registry no longer has what is kept. Blocks. Raises RegistryUnavailable or UnusableSchema."""
        kept = self.kept(reference)
        if self.registry is None or kept is None:
            return False
        try:
            return self.registry.schema(reference) != kept
        except UnknownToRegistry:
            return True
