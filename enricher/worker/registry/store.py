"""Finds schemas: in the registry, and in copies of its schemas on disk.

A worker that restarts while the registry is away can still read records of the schemas that it has seen, and write its own,
whose id is kept too. The copy counts only then: a registry that answers is always asked, so one that was emptied and filled
again is believed at the next start.

The registry alone judges whether a change of our schema is compatible. What our formats promise beyond that is a test
(`tests/schemas/test_released_schemas.py`).
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from enricher.errors import BrokerError, TransactionTrouble
from enricher.worker.articles.schemas import NamedSchema, Schema, SchemaRef
from enricher.worker.contracts import SchemaType
from enricher.worker.registry.registry_client import (
    RefusedByRegistry,
    RegistryClient,
    RegistryError,
    RegistryUnavailable,
    UnusableSchema,
)
from enricher.worker.runtime.repeats import Repeats

log = logging.getLogger(__name__)

FindSchema = Callable[[SchemaRef], Schema]
"""Finds a schema. Blocks. Raises UnknownToRegistry, UnusableSchema or RegistryUnavailable."""


@dataclass(frozen=True, slots=True)
class SchemaPlaces:
    """The places where schemas of inputs are found."""

    client: RegistryClient
    store: SchemaStore

    def find(self, reference: SchemaRef) -> Schema:
        """Find a schema, as `FindSchema` says."""
        try:
            schema = self.client.schema(reference)
        except RegistryUnavailable:
            if (kept := self.store.find(reference)) is None:
                raise
            return kept
        self.store.keep(reference, schema)
        return schema


class SchemaStore:
    """A folder for each registry, in `cache_dir`. Files are replaced as a whole, so several processes may use a folder.

    Errors of the disk are logged, never raised: then nothing is kept.
    """

    def __init__(self, cache_dir: Path, registry: str) -> None:
        self.folder = cache_dir / hashlib.sha256(registry.encode()).hexdigest()[:16]
        self._complaints = Repeats()

    def find(self, reference: SchemaRef) -> Schema | None:
        """The schema that was kept under this reference; None if there is none."""
        try:
            kind, text, references = self._read(_name(reference))
            return Schema(kind, text, tuple(NamedSchema(name, each) for name, each in references))
        except (TypeError, ValueError):
            return None

    def keep(self, reference: SchemaRef, schema: Schema) -> None:
        """Keep a schema; it replaces another one."""
        named = [[each.name, each.text] for each in schema.references]
        self._write(_name(reference), [schema.type, schema.text, named])

    def id_of(self, subject: str, schema: Schema) -> int | None:
        """The id that was kept for our own schema of a subject; None if there is none."""
        schema_id = self._read(_own_name(subject, schema))
        return schema_id if type(schema_id) is int else None

    def keep_id(self, subject: str, schema: Schema, schema_id: int) -> None:
        """Keep the id of our own schema of a subject; it replaces another one."""
        self._write(_own_name(subject, schema), schema_id)

    def _read(self, name: str) -> Any:  # noqa: ANN401  any JSON
        """The content that was kept; None if there is none, or if it cannot be read."""
        try:
            return orjson.loads((self.folder / name).read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, orjson.JSONDecodeError) as error:
            self._complain("read", error)
            return None

    def _write(self, name: str, content: object) -> None:
        try:
            body = orjson.dumps(content)
            self.folder.mkdir(parents=True, exist_ok=True)
            handle, temporary = tempfile.mkstemp(dir=self.folder, prefix=".new-")
            try:
                with os.fdopen(handle, "wb") as opened:
                    opened.write(body)
                Path(temporary).replace(self.folder / name)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
        except (OSError, TypeError) as error:  # orjson: a lone surrogate in a text
            self._complain("written", error)

    def _complain(self, what: str, error: Exception) -> None:
        """Log once for each reason: without the folder the worker works, but not through a restart."""
        reason = (error.strerror if isinstance(error, OSError) else None) or type(error).__name__
        if self._complaints.is_new((what, reason)):
            log.warning("a schema in %s (registry.cache_dir) cannot be %s: %s", self.folder, what, reason)


def _name(reference: SchemaRef) -> str:
    # Both are made of numbers: `envelope` reads them from bytes, so nothing of a record becomes part of a path.
    return f"{reference.kind}-{reference.name}.json"


def _own_name(subject: str, schema: Schema) -> str:
    return f"subject-{hashlib.sha256(orjson.dumps([subject, schema.type, schema.text])).hexdigest()}.json"


_MEANINGS: Mapping[str, str] = {
    "BACKWARD": "readers with the new schema can read what was written with the old one",
    "FORWARD": "readers with the old schema can read what is written with the new one",
    "FULL": "readers with either schema can read what is written with the other one",
    "NONE": "every change is allowed",
}
_RECOMMENDED: Mapping[SchemaType, str] = {
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


def recommended_level(schema_type: SchemaType) -> str:
    """The level for the subject of records that allows new optional fields and refuses breaking changes."""
    return _RECOMMENDED[schema_type]
