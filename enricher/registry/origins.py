"""Where schemas come from: a registry and what is kept of it on disk, and a folder of schemas of AWS Glue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from enricher.codec.schemas import Schema, SchemaRef
from enricher.registry.errors import RegistryError, UnknownToRegistry, UnusableSchema
from enricher.registry.glue import GlueFolder
from enricher.registry.store import SchemaStore


class Registry(Protocol):
    """What is needed of a `RegistryClient`."""

    def schema(self, reference: SchemaRef) -> Schema:
        """Blocks. Raises a RegistryError."""

    def schemas(self, references: Sequence[SchemaRef]) -> Sequence[Schema | RegistryError]:
        """What `schema` returns or raises for each."""

    def answers_about_ids(self) -> bool:
        """Whether it answers questions about ids now. Blocks."""


@dataclass(frozen=True, slots=True)
class Origins:
    """None where the settings name no such place. `store` keeps schemas of `registry`."""

    registry: Registry | None = None
    store: SchemaStore | None = None
    glue: GlueFolder | None = None

    def kept(self, reference: SchemaRef) -> Schema | None:
        """The schema from disk."""
        return self.store.find(reference) if self.store and reference.kind != "glue" else None

    def fetch_each(self, references: Sequence[SchemaRef]) -> list[Schema | RegistryError]:
        """The schemas from where they belong, or why there is none; keeps them. Blocks."""
        asked = [each for each in references if each.kind != "glue"]
        answers = dict(zip(asked, self._from_registry(asked), strict=True))
        return [self._from_folder(each) if each.kind == "glue" else answers[each] for each in references]

    def answers_about_ids(self) -> bool:
        """Whether the registry answers questions about ids now. Blocks."""
        return self.registry is not None and self.registry.answers_about_ids()

    def changed(self, reference: SchemaRef) -> bool:
        """Whether the registry no longer has what is kept. Blocks. Raises RegistryUnavailable or UnusableSchema."""
        kept = self.kept(reference)
        if self.registry is None or kept is None:
            return False
        try:
            return self.registry.schema(reference) != kept
        except UnknownToRegistry:
            return True

    def _from_registry(self, references: Sequence[SchemaRef]) -> Sequence[Schema | RegistryError]:
        if self.registry is None:
            return [UnusableSchema("registry.url is not set") for _ in references]
        found = self.registry.schemas(references) if references else ()
        return [
            self.store.keep(reference, each) if self.store and isinstance(each, Schema) else each
            for reference, each in zip(references, found, strict=True)
        ]

    def _from_folder(self, reference: SchemaRef) -> Schema | RegistryError:
        if self.glue is None:
            return UnusableSchema("registry.glue_folder is not set")
        try:
            return self.glue.schema(reference.name)
        except RegistryError as error:
            return error
