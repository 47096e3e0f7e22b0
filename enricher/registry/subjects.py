"""The id of our own schema in a registry, which the records that we write carry."""

from __future__ import annotations

import logging

from enricher.codec.schemas import Schema
from enricher.errors import TransactionTrouble
from enricher.registry.client import RegistryClient
from enricher.registry.errors import RefusedByRegistry, RegistryUnavailable, UnusableSchema
from enricher.registry.store import SchemaStore

log = logging.getLogger(__name__)


class SubjectIds:
    """Asks the registry; while it does not answer, what it said last counts."""

    def __init__(self, client: RegistryClient, store: SchemaStore) -> None:
        self._client = client
        self._store = store

    def subject_id(self, subject: str, schema: Schema) -> int | None:
        """The id of this very schema under a subject; None if the registry does not have it. Blocks.

        Raises TransactionTrouble, as for a broker that is away, if the registry does not answer and has never told it.
        """
        try:
            registered = self._client.lookup(subject, schema)
        except (RegistryUnavailable, UnusableSchema, RefusedByRegistry) as error:
            if (known := self._store.id_of(subject, schema)) is not None:
                log.warning(
                    "the schema registry gives no id of subject %s (%s): using %d from disk", subject, error, known
                )
                return known
            message = f"the schema registry gives no id of subject {subject}, and none is on disk: {error}"
            raise TransactionTrouble(message) from None
        if registered is None:
            return None
        self._store.keep_id(subject, schema, registered.id)
        return registered.id

    def register(self, subject: str, schema: Schema) -> int:
        """Register the schema and return its id. Blocks. Raises a RegistryError."""
        schema_id = self._client.register(subject, schema)
        self._store.keep_id(subject, schema, schema_id)
        return schema_id
