"""The schema of our own records in a registry: its id, which every record carries, and the level that its subject needs.

The registry alone judges whether a change is compatible. What our formats promise beyond that is a test
(`tests/schemas/test_released_schemas.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Literal

from enricher.errors import BrokerError, TransactionTrouble
from enricher.worker.articles.schemas import Schema
from enricher.worker.contracts import SchemaType
from enricher.worker.registry.registry_client import (
    RefusedByRegistry,
    RegistryClient,
    RegistryError,
    RegistryUnavailable,
    UnusableSchema,
)
from enricher.worker.registry.store import SchemaStore

log = logging.getLogger(__name__)

Level = Literal["BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE", "NONE"]

_MEANINGS: Mapping[str, str] = {
    "BACKWARD": "readers with the new schema can read what was written with the old one",
    "FORWARD": "readers with the old schema can read what is written with the new one",
    "FULL": "readers with either schema can read what is written with the other one",
    "NONE": "every change is allowed",
}
_RECOMMENDED: Mapping[SchemaType, Level] = {
    # A new optional field has a default: old and new readers read both.
    "AVRO": "FULL_TRANSITIVE",
    # FORWARD and FULL would refuse a new field whose message type is new too.
    "PROTOBUF": "BACKWARD_TRANSITIVE",
    # BACKWARD and FULL refuse every new property of an object that allows unknown ones: older data may have used its name
    # for something else. Nothing but the worker writes records, so there is no such data.
    "JSON": "FORWARD_TRANSITIVE",
}


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


def describe_level(level: str) -> str | None:
    """The meaning of a level in one sentence; None for an unknown level."""
    return _MEANINGS.get(level.removesuffix("_TRANSITIVE"))


def recommended_level(schema_type: SchemaType) -> Level:
    """The level for the subject of records that allows new optional fields and refuses breaking changes."""
    return _RECOMMENDED[schema_type]
