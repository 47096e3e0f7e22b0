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
    """Our schema under its subject. `auto_register`: register the schema if the subject lacks it."""

    def __init__(
        self, subject: str, schema: Schema, client: RegistryClient, store: SchemaStore, *, auto_register: bool = False
    ) -> None:
        self._subject = subject
        self._schema = schema
        self._client = client
        self._store = store
        self._auto_register = auto_register

    def find_id(self) -> int:
        """The id; while the registry does not answer, the one that it gave last. Blocks.

        Raises TransactionTrouble if the registry does not answer and the id is not on disk; then it may be called again, as
        for a broker that is away. Raises BrokerError if the schema is not registered, or the registry refuses it.
        """
        try:
            registered = self._client.lookup(self._subject, self._schema)
        except (RegistryUnavailable, UnusableSchema, RefusedByRegistry) as error:
            return self._id_on_disk(error)
        schema_id = registered.id if registered else self._register()
        self._store.keep_id(self._subject, self._schema, schema_id)
        return schema_id

    def _id_on_disk(self, error: RegistryError) -> int:
        known = self._store.id_of(self._subject, self._schema)
        if known is None:
            message = f"the schema registry gives no id of subject {self._subject}, and none is on disk: {error}"
            raise TransactionTrouble(message) from None
        log.warning(
            "the schema registry gives no id of subject %s (%s): using %d from disk", self._subject, error, known
        )
        return known

    def _register(self) -> int:
        if not self._auto_register:
            message = (
                f"the schema registry does not have the schema of records ({self._schema.type}) under the subject "
                f"'{self._subject}': register it with 'enricher schemas register', or set registry.auto_register"
            )
            raise BrokerError(message)
        try:
            schema_id = self._client.register(self._subject, self._schema)
        except RegistryUnavailable as error:
            raise TransactionTrouble(f"the schema of records cannot be registered yet: {error}") from error
        except RegistryError as error:
            message = f"the schema registry refuses the schema of records, subject '{self._subject}': {error}"
            raise BrokerError(message) from error
        log.info("registered the schema of records: subject %s, id %d", self._subject, schema_id)
        return schema_id
