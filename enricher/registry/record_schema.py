"""Finds the id of the schema that records are written by, once at the start; `subjects` asks the registry and the disk."""

from __future__ import annotations

import logging
from typing import Protocol

from enricher.codec.schemas import Schema
from enricher.errors import BrokerError, TransactionTrouble
from enricher.registry.errors import RegistryError, RegistryUnavailable

log = logging.getLogger(__name__)


class Subjects(Protocol):
    """What is needed of `SubjectIds`. Both methods block."""

    def subject_id(self, subject: str, schema: Schema) -> int | None:
        """The id of this schema under a subject; None if it is not registered. Raises TransactionTrouble."""

    def register(self, subject: str, schema: Schema) -> int:
        """Register the schema and return its id. Raises a RegistryError."""


class RecordSchema:
    """Our schema under its subject. `auto_register`: register it if the subject lacks it."""

    def __init__(self, subject: str, schema: Schema, subjects: Subjects, *, auto_register: bool = False) -> None:
        self._subject = subject
        self._schema = schema
        self._subjects = subjects
        self._auto_register = auto_register

    def find_id(self) -> int:
        """The id. Blocks.

        Raises TransactionTrouble, after which it may be called again, if the registry is away and the id is not on disk;
        BrokerError if the schema is not registered, or the registry refuses it.
        """
        schema_id = self._subjects.subject_id(self._subject, self._schema)
        if schema_id is not None:
            return schema_id
        if not self._auto_register:
            message = (
                f"the schema registry does not have the schema of records ({self._schema.type}) under the subject "
                f"'{self._subject}': register it with 'enricher schemas register', or set registry.auto_register"
            )
            raise BrokerError(message)
        return self._registered()

    def _registered(self) -> int:
        try:
            schema_id = self._subjects.register(self._subject, self._schema)
        except RegistryUnavailable as error:
            raise TransactionTrouble(f"the schema of records cannot be registered yet: {error}") from error
        except RegistryError as error:
            message = f"the schema registry refuses the schema of records, subject '{self._subject}': {error}"
            raise BrokerError(message) from error
        log.info("registered the schema of records: subject %s, id %d", self._subject, schema_id)
        return schema_id
