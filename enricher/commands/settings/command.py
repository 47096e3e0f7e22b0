"""The command `settings`: chooses the form and prints. The list itself is `rows`."""

import json
import sys
from itertools import groupby
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

from enricher.commands.console import data_console
from enricher.commands.settings.markdown import settings_page
from enricher.commands.settings.rows import Row, all_rows, group_reason
from enricher.errors import SettingsError
from enricher.settings import CONFIG_REASON, CONFIG_VARIABLE, Settings, load_settings


def show_settings(
    *,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="As a page, without the current values: deploy/settings.md.")
    ] = False,
    json_schema: Annotated[bool, typer.Option("--json-schema", help="As a JSON Schema of the TOML file.")] = False,
) -> None:
    """Show every setting: its variable, type and unit, default, value in force and reason. Secrets are masked."""
    if markdown:
        sys.stdout.write(settings_page())
    elif json_schema:
        sys.stdout.write(json.dumps(Settings.model_json_schema(), indent=2) + "\n")
    else:
        _list(data_console())


def _list(console: Console) -> None:
    """Also where the settings are wrong: this is the page that the error message sends people to."""
    try:
        settings = load_settings()
    except SettingsError:
        _print_rows(console, None)
        raise
    _print_rows(console, settings)


def _print_rows(console: Console, settings: Settings | None) -> None:
    console.print(f"[cyan]{CONFIG_VARIABLE}[/]  {CONFIG_REASON}", soft_wrap=True)
    for group, rows in groupby(all_rows(), key=lambda row: row.group):
        console.print(f"\n[bold]\\[{group}][/]  {escape(group_reason(group))}")
        for row in rows:
            _print_row(console, row, settings)


def _print_row(console: Console, row: Row, settings: Settings | None) -> None:
    value = row.default if settings is None else row.current(settings)
    changed = value != row.default
    default = f"  [dim](default: {escape(row.default)})[/]" if changed else ""
    style = "bold yellow" if changed else "green"
    console.print(f"[cyan]{row.variable}[/]=[{style}]{escape(value)}[/]{default}", soft_wrap=True)
    console.print(Padding(f"[dim]{escape(row.kind)}.[/] {escape(row.reason)}", (0, 0, 0, 4)))
