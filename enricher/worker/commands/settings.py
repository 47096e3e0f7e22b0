"""`enricher settings`: every setting, for people, as tables in Markdown, or as a JSON Schema."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from itertools import groupby
from textwrap import fill
from typing import Annotated

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

from enricher.errors import SettingsError
from enricher.worker.commands.console import data_console
from enricher.worker.settings import CONFIG_REASON, CONFIG_VARIABLE, DEFAULT_CONFIG_FILE, Settings, load_settings
from enricher.worker.settings.listing import REQUIRED, Row, all_rows, group_reason, heading, masked_text
from enricher.worker.settings.worker import TASKS

_FOR_EXPERTS = " (for experts)"
_PAGE_CHARS = 100
"""The width of prose in Markdown."""
_ABOUT_EXPERTS = (
    "Their defaults fit nearly everywhere: change one only for the reason that it names, and measure before and after."
)


def show_settings(
    *,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print tables in Markdown, without current values.")
    ] = False,
    json_schema: Annotated[bool, typer.Option("--json-schema", help="Print a JSON Schema of the TOML file.")] = False,
    changed: Annotated[bool, typer.Option("--changed", help="Only settings that differ from their defaults.")] = False,
    word: Annotated[
        str, typer.Option("--filter", metavar="WORD", help="Only settings with this word in their name or reason.")
    ] = "",
) -> None:
    """Show every setting: its variable, type and unit, default, value in force and reason. Secrets are masked."""
    if markdown:
        sys.stdout.write(settings_tables())
    elif json_schema:
        sys.stdout.write(json.dumps(Settings.model_json_schema(), indent=2) + "\n")
    else:
        _print_settings(data_console(), word.lower(), changed=changed)


def _print_settings(console: Console, word: str, *, changed: bool) -> None:
    """Print the settings even if they are invalid, because error messages refer to this list."""
    settings = None
    try:
        settings = load_settings()
    finally:
        if not (word or changed):
            console.print(f"[cyan]{CONFIG_VARIABLE}[/]  {CONFIG_REASON}\n", soft_wrap=True)
        wanted = [row for row in all_rows() if word in f"{row.variable} {row.group}.{row.name} {row.reason}".lower()]
        for (expert, group), rows in groupby(wanted, key=_table):
            shown = [(row, values) for row in rows if (values := _values(row, settings, changed=changed))]
            if shown:
                console.print(
                    f"[bold]\\[{heading(group)}][/]  {escape(group_reason(group))}{_FOR_EXPERTS if expert else ''}"
                )
            for row, values in shown:
                _print_row(console, row, values)
            if shown:
                console.print()
    if not wanted:
        raise SettingsError(f"--filter {word}: no setting has this word in its name or reason")


def _table(row: Row) -> tuple[bool, str]:
    return row.expert, row.group


def _values(row: Row, settings: Settings | None, *, changed: bool) -> Mapping[str, str]:
    """The values in force by name: one, or one for each task. `changed`: only those that differ from the default."""
    if settings is None:
        groups: Mapping[str, BaseModel] = {}
    elif row.group == TASKS:
        groups = {f"tasks.{name}.{row.name}": task for name, task in settings.tasks.items()}
    else:
        groups = {row.variable: getattr(settings, row.group)}
    values = {name: masked_text(row.name, getattr(group, row.name)) for name, group in groups.items()}
    if not changed:
        return values or {row.variable: row.default}
    return {
        name: text for name, text in values.items() if row.name in groups[name].model_fields_set and text != row.default
    }


def _print_row(console: Console, row: Row, values: Mapping[str, str]) -> None:
    for name, value in values.items():
        differs = value != row.default
        default = f"  [dim](default: {escape(row.default)})[/]" if differs and row.default != REQUIRED else ""
        style = "bold yellow" if differs else "green"
        console.print(f"[cyan]{name}[/]=[{style}]{escape(value)}[/]{default}", soft_wrap=True)
    console.print(Padding(f"[dim]{escape(row.kind)}.[/] {escape(row.reason)}", (0, 0, 0, 4)))


def settings_tables() -> str:
    """A table for each group, without current values, so that the page is the same on every machine."""
    head = ["| variable | type, unit, bounds | default | what it is for |", "|---|---|---|---|"]
    lines = [*head, f"| `{CONFIG_VARIABLE}` | path | `{DEFAULT_CONFIG_FILE}`, if it exists | {CONFIG_REASON} |", ""]
    for expert, tables in groupby(all_rows(), key=lambda row: row.expert):
        lines += [f"## {'Settings for experts' if expert else 'Settings that people set'}\n"]
        lines += [f"{fill(_ABOUT_EXPERTS, _PAGE_CHARS)}\n"] if expert else []
        for group, rows in groupby(tables, key=lambda row: row.group):
            lines += [f"### `[{heading(group)}]`{_FOR_EXPERTS if expert else ''}\n"]
            lines += [] if expert else [f"{fill(group_reason(group), _PAGE_CHARS)}\n"]
            lines += [*head, *map(_line, rows), ""]
    return "\n".join(lines)


def _line(row: Row) -> str:
    default = row.default if row.default_in_words else f"`{row.default}`"
    cells = [f"`{row.variable}`", row.kind, default, row.reason]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
