"""Finds schemas: in the registry, on disk while that is away, or in the folder of AWS Glue."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from enricher.worker.articles.schemas import Schema, SchemaRef
from enricher.worker.registry.registry_client import RegistryClient
from enricher.worker.registry.registry_errors import RegistryUnavailable, UnusableSchema
from enricher.worker.registry.store import GlueFolder, SchemaStore

FindSchema = Callable[[SchemaRef], Schema]
"""Gets a schema. Blocks. Raises UnknownToRegistry, UnusableSchema or RegistryUnavailable."""


@dataclass(frozen=True, slots=True)
class SchemaPlaces:
    """Each is None if the settings do not name it; `client` and `store` belong together."""

    client: RegistryClient | None = None
    store: SchemaStore | None = None
    glue: GlueFolder | None = None

    def find(self, reference: SchemaRef) -> Schema:
        """See `FindSchema`."""
        if not reference.in_registry:
            if self.glue is None:
                raise UnusableSchema("registry.glue_folder is not set")
            return self.glue.schema(reference.name)
        if self.client is None or self.store is None:
            raise UnusableSchema("registry.url is not set")
        try:
            schema = self.client.schema(reference)
        except RegistryUnavailable:
            if (kept := self.store.find(reference)) is None:
                raise
            return kept
        self.store.keep(reference, schema)
        return schema
