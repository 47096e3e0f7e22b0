"""`enricher schemas check`: whether a change of a schema is compatible, offline or as the registry sees it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import orjson
import typer
from rich.markup import escape

from enricher.app.record_schema import subject_of
from enricher.app.registry import registry_client
from enricher.commands.console import data_console, write_line
from enricher.commands.schemas.asking import (
    INCOMPATIBLE,
    FormatOption,
    JsonOption,
    RegistryLevel,
    SubjectOption,
    asking,
    found_offline,
    level_named,
    schema_of_records,
)
from enricher.errors import SettingsError
from enricher.registry.compatibility import (
    Level,
    SchemaType,
    SchemaUnusable,
    parse,
    promised_level,
    type_of,
    violations,
)
from enricher.settings import load_settings

_MAX_FILE_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was compared, at which level, and every violation as one sentence with its place."""

    old: str
    new: str
    type: SchemaType
    level: str
    compatible: bool
    violations: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, object]:
        """For machines."""
        return {
            "old": self.old,
            "new": self.new,
            "type": self.type,
            "compatibility": self.level,
            "compatible": self.compatible,
            "violations": self.violations,
        }


def schemas_check(
    old: Annotated[Path | None, typer.Argument(metavar="OLD", show_default=False, help="The schema as it was.")] = None,
    new: Annotated[
        Path | None, typer.Argument(metavar="NEW", show_default=False, help="The schema as it is to be.")
    ] = None,
    *,
    compatibility: Annotated[
        RegistryLevel | None,
        typer.Option(help="Rules of a registry. Default: what our own formats promise, see above."),
    ] = None,
    registry: Annotated[
        bool,
        typer.Option("--registry", help="Ask the schema registry instead, with the schema of records of this version."),
    ] = False,
    output_format: FormatOption = None,
    subject: SubjectOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check whether a change of a schema is compatible: two files, or our schema against the registry. Changes nothing.

    Files are JSON Schemas, Avro (.avsc) or Protobuf (.proto), and nothing is asked over the network. Without
    --compatibility they must keep what our formats promise: optional fields may come; nothing that is there changes or
    goes, even where a registry would allow it; for an article, whatever was accepted is accepted. With --registry, the
    registry decides by the subject's own compatibility.

    Each violation is one line: its place in the schema, and what is wrong. Exit code: 0 if compatible, 11 if not, 2 for
    settings and files that are no schemas, 4 if the registry does not answer.
    """
    if registry:
        if (old, new, compatibility) != (None, None, None):
            raise SettingsError("with --registry there are no files, and the registry knows the compatibility")
        verdict = _asked(output_format, subject)
    else:
        if old is None or new is None:
            raise SettingsError("name two files, OLD and NEW, or say --registry")
        if (output_format, subject) != (None, None):
            raise SettingsError("--format and --subject belong to --registry")
        verdict = _compared(old, new, Level(compatibility) if compatibility else None)
    if as_json:
        write_line(orjson.dumps(verdict.as_json(), option=orjson.OPT_INDENT_2))
    else:
        _show(verdict)
    raise typer.Exit(0 if verdict.compatible else INCOMPATIBLE)


def _compared(old: Path, new: Path, level: Level | None) -> Verdict:
    texts = {path: _read(path) for path in (old, new)}
    kinds = {path: _type_of(path, text) for path, text in texts.items()}
    if kinds[old] != kinds[new]:
        raise SettingsError(
            f"{old} is {kinds[old]}, and {new} is {kinds[new]}: a format cannot be compared with another"
        )
    chosen = level or promised_level(texts[old])
    for path, text in texts.items():
        _try(path, kinds[path], text)
    try:
        found = violations(kinds[old], texts[old], texts[new], chosen)
    except SchemaUnusable as error:
        raise SettingsError(f"{old} and {new} cannot be compared: {error}") from error
    return Verdict(str(old), str(new), kinds[old], chosen.value, not found, [str(each) for each in found])


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > _MAX_FILE_BYTES:
            raise SettingsError(f"{path} has more than {_MAX_FILE_BYTES:,} bytes, which is no schema")
        return path.read_text("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path} is no text in UTF-8") from error
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}") from error


def _type_of(path: Path, text: str) -> SchemaType:
    try:
        return type_of(path.name, text)
    except SchemaUnusable as error:
        raise SettingsError(f"{path} is no schema: {error}") from error


def _try(path: Path, schema_type: SchemaType, text: str) -> None:
    """Raise SettingsError that names the file if it is no schema of its type."""
    try:
        parse(schema_type, text)
    except SchemaUnusable as error:
        raise SettingsError(f"{path} is no schema that can be used: {error}") from error
    except ImportError as error:
        raise SettingsError(f"{path} needs more packages ({error}): pip install '.[registry]'") from error


def _asked(output_format: FormatOption, subject: SubjectOption) -> Verdict:
    settings = load_settings()
    schema = schema_of_records(settings, output_format)
    name = subject or subject_of(settings)
    client = registry_client(settings)
    with asking(client):
        newest, level = client.latest(name), client.compatibility(name)
        answer = client.check(name, schema)
        known = level_named(level)
        found = list(answer.messages)
        if not answer.compatible and known:
            found = found_offline(client, name, schema, known) or found
    old = f"{name} version {newest.version}" if newest else f"{name} (no such subject)"
    return Verdict(old, "the schema of records", schema.type, level, answer.compatible, found)


def _show(verdict: Verdict) -> None:
    console = data_console()
    for each in verdict.violations:
        console.print(escape(each), soft_wrap=True)
    what = escape(f"{verdict.old} -> {verdict.new}")
    known = Level(verdict.level) if verdict.level in set(Level) else None
    rule = f"{verdict.level}{f': {known.meaning}' if known else ''}"
    count = len(verdict.violations)
    if verdict.compatible:
        console.print(f"[green]compatible[/] ({rule}): {what}", soft_wrap=True)
    else:
        number = f", {count} violation{'' if count == 1 else 's'}" if count else ""
        console.print(f"[bold red]not compatible[/] ({rule}){number}: {what}", soft_wrap=True)
