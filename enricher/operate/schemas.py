"""`enricher schemas register`: registers the schema of records, so that workers can write in its format."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import orjson
import typer
from rich.markup import escape

from enricher.errors import BrokerError, SettingsError
from enricher.worker.articles.schemas import Schema
from enricher.worker.commands.console import data_console, write_line
from enricher.worker.contracts import SCHEMA_TYPES, SchemaFormat, record_schema
from enricher.worker.registry.registry_client import (
    RefusedByRegistry,
    Registered,
    RegistryClient,
    RegistryUnavailable,
    UnusableSchema,
)
from enricher.worker.registry.store import Level, describe_level, recommended_level
from enricher.worker.settings import Settings, load_settings
from enricher.worker.wiring.formats import registry_client, subject_of

INCOMPATIBLE = 11
"""The exit code if the registry says that the schema is not compatible."""


@dataclass(frozen=True, slots=True)
class Result:
    """The subject before, and what was or would be done.

    `newest`: the subject's newest version before. `there`: our schema's version; `was_there`: it was so before. `accepted`:
    None if a dry run cannot know.
    """

    subject: str
    schema: Schema
    newest: Registered | None
    there: Registered | None
    was_there: bool
    level_before: str
    level: str
    accepted: bool | None
    messages: tuple[str, ...]
    dry_run: bool

    @property
    def action(self) -> str:
        """`refused`, `unchanged`, `registered`, `would register` or `would try to register`."""
        if self.accepted is None:
            return "would try to register"
        if not self.accepted:
            return "refused"
        if self.was_there:
            return "unchanged"
        return "would register" if self.dry_run else "registered"

    def as_json(self) -> dict[str, Any]:
        """The object printed by `--json`."""
        return {
            "subject": self.subject,
            "type": self.schema.type,
            "action": self.action,
            "version": self.there and self.there.version,
            "id": self.there and self.there.id,
            "newest_version_before": self.newest and self.newest.version,
            "compatibility": self.level,
            "compatibility_before": self.level_before,
            "messages": list(self.messages),
        } | ({"schema": self.schema.text} if self.dry_run else {})


def schemas_register(
    *,
    output_format: Annotated[
        SchemaFormat | None, typer.Option("--format", help="Which schema of records. Default: `output.format`.")
    ] = None,
    subject: Annotated[
        str | None,
        typer.Option("--subject", metavar="NAME", help="Default: `output.subject`, else OUTPUT_TOPIC-value."),
    ] = None,
    compatibility: Annotated[
        Level | None,
        typer.Option(help="Also set the subject's compatibility. Default: it is left as it is."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the schema and whether it would be accepted; change nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object.")] = False,
) -> None:
    """Register the schema of records in the schema registry. Workers write Avro, Protobuf or JSON with its id.

    It can be repeated: a schema that is there already stays as it is, with its id. Nothing else in the registry is changed,
    unless --compatibility asks for it. Which compatibility to set for which format, and why, is in schemas/README.md: with
    the default of most registries, BACKWARD, a JSON Schema cannot gain the optional fields that later versions bring.

    Exit code: 0, or 11 if the registry refuses the schema, 2 for settings, 4 if the registry does not answer. It needs the
    right to write to the subject; --dry-run only reads, and a registry can be asked only about the level that is set: with
    another --compatibility a dry run says that it does not know.
    """
    settings = load_settings()
    schema = _schema_of_records(settings, output_format)
    name = subject or subject_of(settings)
    client = registry_client(settings)
    with _asking(client):
        result = _carry_out(client, name, schema, compatibility, dry_run=dry_run)
    if as_json:
        write_line(orjson.dumps(result.as_json(), option=orjson.OPT_INDENT_2))
    else:
        _show(client, result)
    raise typer.Exit(INCOMPATIBLE if result.accepted is False else 0)


@contextmanager
def _asking(client: RegistryClient) -> Iterator[None]:
    """Raise BrokerError for the errors of a registry: a command does not wait for it."""
    try:
        yield
    except RegistryUnavailable as error:
        raise BrokerError(f"the schema registry cannot be used: {error}") from error
    except (UnusableSchema, RefusedByRegistry) as error:
        raise BrokerError(f"the schema registry {client.name}: {error}") from error


def _schema_of_records(settings: Settings, wanted: SchemaFormat | None) -> Schema:
    """The schema to register for `wanted`, or for `output.format`. Raises SettingsError if that has none."""
    chosen = wanted or settings.output.format
    if chosen == "json":
        raise SettingsError(
            "output.format is json, whose records name no schema. Set output.format to avro, protobuf or json-schema, "
            "or say --format"
        )
    schema_type = SCHEMA_TYPES[chosen]
    return Schema(schema_type, record_schema(schema_type))


def _carry_out(client: RegistryClient, subject: str, schema: Schema, wanted: Level | None, *, dry_run: bool) -> Result:
    newest = client.latest(subject)
    if newest and newest.type != schema.type:
        message = (
            f"the subject '{subject}' has schemas of type {newest.type}, and this one is {schema.type}: "
            "use another one (output.subject, --subject). Nothing was changed"
        )
        raise SettingsError(message)
    there = client.lookup(subject, schema)
    was_there, level_before = there is not None, client.compatibility(subject)
    if wanted and wanted != level_before and not dry_run:
        client.set_compatibility(subject, wanted)
    level = wanted or level_before
    accepted: bool | None = True
    messages: tuple[str, ...] = ()
    if not was_there and newest and dry_run and level != level_before:
        accepted, messages = None, (f"the registry judges only by the level that is set, so {level} is not tried",)
    elif not was_there and dry_run:
        accepted = client.is_compatible(subject, schema)
        messages = () if accepted else ("the registry says why only when it is asked to register",)
    elif not was_there:
        try:
            number = client.register(subject, schema)
            there = client.lookup(subject, schema) or Registered(1, number, schema.type)
        except RefusedByRegistry as error:
            accepted, messages = False, (str(error),)
    return Result(subject, schema, newest, there, was_there, level_before, level, accepted, messages, dry_run)


def _show(client: RegistryClient, result: Result) -> None:
    console = data_console()
    if result.dry_run:
        console.print(escape(result.schema.text), soft_wrap=True)
    console.print(f"registry       {escape(client.name)}", soft_wrap=True)
    console.print(f"subject        {escape(result.subject)}", soft_wrap=True)
    before = (
        f"its newest version is {result.newest.version}, id {result.newest.id}" if result.newest else "no such subject"
    )
    console.print(f"before         {before}")
    console.print(f"compatibility  {escape(_level_change(result))}", soft_wrap=True)
    where = f": version {result.there.version}, id {result.there.id}" if result.there else ""
    colour = "bold red" if result.accepted is False else "green"
    console.print(f"result         [{colour}]{result.action}[/]{where}", soft_wrap=True)
    for message in result.messages:
        console.print(f"               {escape(message)}", soft_wrap=True)
    advised = recommended_level(result.schema.type)
    if result.level != advised:
        console.print(
            f"Later versions may gain optional fields. For this format that needs {advised}, so that they are "
            f"accepted and breaking changes are not: --compatibility {advised}",
            soft_wrap=True,
        )


def _level_change(result: Result) -> str:
    known = describe_level(result.level)
    meaning = f" ({known})" if known else ""
    if result.level == result.level_before:
        return f"{result.level}{meaning}"
    return f"{'would become' if result.dry_run else 'now'} {result.level}{meaning}, was {result.level_before}"
