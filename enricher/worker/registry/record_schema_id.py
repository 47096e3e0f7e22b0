"""Finds the id of the schema that records are written by, once at the start: every record carries it."""

from __future__ import annotations

import logging

from enricher.errors import BrokerError, TransactionTrouble
from enricher.worker.articles.schemas import Schema
from enricher.worker.registry.registry_client import RegistryClient
from enricher.worker.registry.registry_errors import (
    RefusedByRegistry,
    RegistryError,
    RegistryUnavailable,
    UnusableSchema,
)
from enricher.worker.registry.store import SchemaStore

log = logging.getLogger(__name__)


class RecordSchema:
    """Our schema under its subject."""

    def __init__(self, subject: str, schema: Schema, client: RegistryClient, store: SchemaStore) -> None:
        self._subject = subject
        self._schema = schema
        self._client = client
        self._store = store

    def find_id(self) -> int:
        """The id; while the registry does not answer, the one that it gave last. Blocks.

        Raises TransactionTrouble if the registry does not answer and the id is not on disk; then it may be called again, as
        for a broker that is away. Raises BrokerError if the schema is not registered.
        """
        try:
            registered = self._client.lookup(self._subject, self._schema)
        except (RegistryUnavailable, UnusableSchema, RefusedByRegistry) as error:
            return self._id_on_disk(error)
        if registered is None:
            message = (
                f"the schema registry does not have the schema of records ({self._schema.type}) under the subject "
                f"'{self._subject}': register it with 'enricher schemas register'"
            )
            raise BrokerError(message)
        self._store.keep_id(self._subject, self._schema, registered.id)
        return registered.id

    def _id_on_disk(self, error: RegistryError) -> int:
        known = self._store.id_of(self._subject, self._schema)
        if known is None:
            message = f"the schema registry gives no id of subject {self._subject}, and none is on disk: {error}"
            raise TransactionTrouble(message) from None
        log.warning(
            "the schema registry gives no id of subject %s (%s): using %d from disk", self._subject, error, known
        )
        return known
