"""`enricher schemas check`: whether the registry would accept the schema of records as the subject's next version."""

from __future__ import annotations

from dataclasses import dataclass

import orjson
import typer
from rich.markup import escape

from enricher.operate.schemas.asking import (
    INCOMPATIBLE,
    FormatOption,
    JsonOption,
    SubjectOption,
    asking,
    schema_of_records,
)
from enricher.worker.build.record_writer import subject_of
from enricher.worker.build.schema_registry import registry_client
from enricher.worker.commands.console import data_console, write_line
from enricher.worker.contracts import SchemaType
from enricher.worker.registry.levels import describe_level
from enricher.worker.settings import load_settings


@dataclass(frozen=True, slots=True)
class Verdict:
    """The registry's answer. `newest_version`: the subject's, None if there is no such subject."""

    subject: str
    newest_version: int | None
    type: SchemaType
    level: str
    compatible: bool
    violations: tuple[str, ...]
    """The registry's own sentences; some registries give none."""

    def as_json(self) -> dict[str, object]:
        """The object printed by `--json`."""
        return {
            "subject": self.subject,
            "newest_version": self.newest_version,
            "type": self.type,
            "compatibility": self.level,
            "compatible": self.compatible,
            "violations": list(self.violations),
        }


def schemas_check(
    *, output_format: FormatOption = None, subject: SubjectOption = None, as_json: JsonOption = False
) -> None:
    """Ask the schema registry whether it would accept the schema of records of this version. Changes nothing.

    The registry decides, by the compatibility of the subject; a registry that gives its reasons gives them here, a line
    each. What later versions of the schema may change is in schemas/README.md.

    Exit code: 0 if compatible, 11 if not, 2 for settings, 4 if the registry does not answer.
    """
    settings = load_settings()
    schema = schema_of_records(settings, output_format)
    name = subject or subject_of(settings)
    client = registry_client(settings)
    with asking(client):
        newest, level = client.latest(name), client.compatibility(name)
        answer = client.check(name, schema)
    violations = () if answer.compatible else answer.messages
    version = newest.version if newest else None
    verdict = Verdict(name, version, schema.type, level, answer.compatible, violations)
    if as_json:
        write_line(orjson.dumps(verdict.as_json(), option=orjson.OPT_INDENT_2))
    else:
        _show(verdict)
    raise typer.Exit(0 if verdict.compatible else INCOMPATIBLE)


def _show(verdict: Verdict) -> None:
    console = data_console()
    for each in verdict.violations:
        console.print(escape(each), soft_wrap=True)
    newest = "no such subject" if verdict.newest_version is None else f"version {verdict.newest_version}"
    meaning = describe_level(verdict.level)
    rule = escape(f"{verdict.level}: {meaning}" if meaning else verdict.level)
    what = escape(f"the schema of records after {verdict.subject} ({newest})")
    if verdict.compatible:
        console.print(f"[green]compatible[/] ({rule}): {what}", soft_wrap=True)
    else:
        why = "" if verdict.violations else "; the registry gives no reasons"
        console.print(f"[bold red]not compatible[/] ({rule}): {what}{why}", soft_wrap=True)
