"""`enricher schemas register`: registers the schema of records, so that workers can write in its format.

Nothing else in the registry is changed: who runs it sets the compatibility level of a subject.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import typer
from rich.markup import escape

from enricher.errors import BrokerError, SettingsError
from enricher.worker.articles.schemas import Schema
from enricher.worker.commands.console import data_console
from enricher.worker.contracts import SCHEMA_TYPES, record_schema
from enricher.worker.registry.registry_client import (
    RefusedByRegistry,
    Registered,
    RegistryClient,
    RegistryUnavailable,
    UnusableSchema,
)
from enricher.worker.registry.store import describe_level, recommended_level
from enricher.worker.settings import Settings, load_settings
from enricher.worker.wiring.formats import registry_client, subject_of

INCOMPATIBLE = 11
"""The exit code if the registry says that the schema is not compatible."""


def schemas_register(
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the schema and whether it would be accepted; change nothing.")
    ] = False,
) -> None:
    """Register the schema of records of `output.format` in the schema registry, under the subject of `output.subject`.

    It can be repeated: a schema that is there already stays as it is, with its id. Nothing else in the registry is changed.
    Which compatibility level to set there for which format, and why, is in deploy/formats.md: with the default of most
    registries, BACKWARD, a JSON Schema cannot gain the optional fields that later versions bring.

    Exit code: 0, or 11 if the registry refuses the schema, 2 for settings, 4 if the registry does not answer. It needs the
    right to write to the subject; --dry-run only reads.
    """
    settings = load_settings()
    schema, subject, client = _schema_of_records(settings), subject_of(settings), registry_client(settings)
    console = data_console()
    if dry_run:
        console.print(escape(schema.text), soft_wrap=True)
    with _asking(client):
        newest, level = client.latest(subject), client.compatibility(subject)
        _line("registry", client.name)
        _line("subject", subject)
        _line("before", f"its newest version is {newest.version}, id {newest.id}" if newest else "no such subject")
        _line("compatibility", f"{level} ({known})" if (known := describe_level(level)) else level)
        if newest and newest.type != schema.type:
            raise SettingsError(
                f"the subject '{subject}' has schemas of type {newest.type}, and this one is {schema.type}: "
                "use another one (output.subject). Nothing was changed"
            )
        accepted = _register(client, subject, schema, dry_run=dry_run)
    if level != (advised := recommended_level(schema.type)):
        console.print(
            f"Later versions may gain optional fields. For this format that needs {advised}, so that they are accepted and "
            f"breaking changes are not. Set it in the registry: deploy/formats.md has the command.",
            soft_wrap=True,
        )
    raise typer.Exit(0 if accepted else INCOMPATIBLE)


def _register(client: RegistryClient, subject: str, schema: Schema, *, dry_run: bool) -> bool:
    """Register the schema, unless it is there or this is a dry run. Prints the result; False if it is refused."""
    action, refusal, there = "unchanged", "", client.lookup(subject, schema)
    if there is None and dry_run:
        action = "would register"
        if not client.is_compatible(subject, schema):
            refusal = "the registry says why only when it is asked to register"
    elif there is None:
        action = "registered"
        try:
            number = client.register(subject, schema)
            there = client.lookup(subject, schema) or Registered(1, number, schema.type)
        except RefusedByRegistry as error:
            refusal = str(error)
    where = f": version {there.version}, id {there.id}" if there else ""
    _line("result", f"refused: {refusal}" if refusal else action + where)
    return not refusal


def _line(name: str, value: str) -> None:
    data_console().print(f"{name:14} {escape(value)}", soft_wrap=True)


@contextmanager
def _asking(client: RegistryClient) -> Iterator[None]:
    """Map the errors of a registry to BrokerError: a command does not wait for it."""
    try:
        yield
    except RegistryUnavailable as error:
        raise BrokerError(f"the schema registry cannot be used: {error}") from error
    except (UnusableSchema, RefusedByRegistry) as error:
        raise BrokerError(f"the schema registry {client.name}: {error}") from error


def _schema_of_records(settings: Settings) -> Schema:
    """The schema of `output.format`. Raises SettingsError if that has none."""
    if settings.output.format == "json":
        raise SettingsError(
            "output.format is json, whose records name no schema. Set output.format to avro, protobuf or json-schema"
        )
    schema_type = SCHEMA_TYPES[settings.output.format]
    return Schema(schema_type, record_schema(schema_type))
