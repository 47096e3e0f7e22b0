"""Asking a schema registry from a command: the options, the schema of records, and how a registry's errors are mapped."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from enricher.errors import BrokerError, SettingsError
from enricher.worker.articles.schemas import Schema
from enricher.worker.contracts import SCHEMA_TYPES, SchemaFormat, record_schema
from enricher.worker.registry.registry_client import RegistryClient
from enricher.worker.registry.registry_errors import RefusedByRegistry, RegistryUnavailable, UnusableSchema
from enricher.worker.settings import Settings

INCOMPATIBLE = 11
"""The exit code if the registry says that a schema is not compatible."""

FormatOption = Annotated[
    SchemaFormat | None,
    typer.Option("--format", help="Which schema of records. Default: `output.format`."),
]
SubjectOption = Annotated[
    str | None,
    typer.Option("--subject", metavar="NAME", help="Default: `output.subject`, else OUTPUT_TOPIC-value."),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print a JSON object.")]


@contextmanager
def asking(client: RegistryClient) -> Iterator[None]:
    """Raise BrokerError for the errors of a registry: a command does not wait for it."""
    try:
        yield
    except RegistryUnavailable as error:
        raise BrokerError(f"the schema registry cannot be used: {error}") from error
    except (UnusableSchema, RefusedByRegistry) as error:
        raise BrokerError(f"the schema registry {client.name}: {error}") from error


def schema_of_records(settings: Settings, wanted: SchemaFormat | None) -> Schema:
    """The schema to register for `wanted`, or for `output.format`. Raises SettingsError if that has none."""
    chosen = wanted or settings.output.format
    if chosen == "json":
        raise SettingsError(
            "output.format is json, whose records name no schema. Set output.format to avro, protobuf or json-schema, "
            "or say --format"
        )
    schema_type = SCHEMA_TYPES[chosen]
    return Schema(schema_type, record_schema(schema_type))
