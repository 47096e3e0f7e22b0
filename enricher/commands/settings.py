"""`enricher settings`: every setting, for people, as the page deploy/settings.md, or as a JSON Schema.

The list is read from the classes in `enricher.settings`; written by hand are only the defaults that depend on the machine.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

from enricher.commands.console import data_console
from enricher.settings import (
    CONFIG_REASON,
    CONFIG_VARIABLE,
    DEFAULT_CONFIG_FILE,
    FromFile,
    Settings,
    load_settings,
    variable_name,
)

COMMAND = "enricher settings --markdown > deploy/settings.md"
MASK = "***"

_SECRET = re.compile(
    r"password|passphrase|secret|token|credential|private|pem$|oauthbearer\.config|jaas|user\.info", re.IGNORECASE
)
_CREDENTIALS = re.compile(r"(https?://)[^/@\s]*@")
"""User and password of a URL."""
_DEFAULTS_IN_WORDS = {
    ("kafka", "instance"): "the host name",
    ("model", "cache_dir"): "`enricher` in the user's cache folder",
    ("registry", "cache_dir"): "`schemas` in the worker's folder of the user's cache",
}
_UNITS = {"_s": "seconds", "_ms": "milliseconds", "_bytes": "bytes", "_tokens": "tokens", "_chars": "characters"}
_TYPES: Mapping[Any, str] = {str: "text", int: "whole number", float: "number", Path: "path", bool: "true or false"}
_BOUNDS = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}

_PAGE_HEAD = f"""\
# Settings

<!-- Written by `{COMMAND}`; a test compares. Change `enricher/settings/` instead. -->

Every setting is an environment variable `ENRICHER_GROUP__NAME`, or `name` in the table `[group]` of a TOML file:
`{DEFAULT_CONFIG_FILE}` in the working folder, or the file that `{CONFIG_VARIABLE}` names. From weakest to strongest:
defaults, the TOML file, a `.env` file in the working folder, environment variables. Unknown names are refused.
`enricher settings` shows the values in force; `enricher doctor` tests them. Every command logs the files that it reads
settings from, because a `.env` in a working folder that others can write to decides which brokers are used.

| variable | type | default | what it is for |
|---|---|---|---|
| `{CONFIG_VARIABLE}` | path | `{DEFAULT_CONFIG_FILE}`, if it exists | {CONFIG_REASON} |
"""


def show_settings(
    *,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the page deploy/settings.md, without current values.")
    ] = False,
    json_schema: Annotated[bool, typer.Option("--json-schema", help="Print a JSON Schema of the TOML file.")] = False,
) -> None:
    """Show every setting: its variable, type and unit, default, value in force and reason. Secrets are masked."""
    if markdown:
        sys.stdout.write(settings_page())
    elif json_schema:
        sys.stdout.write(json.dumps(Settings.model_json_schema(), indent=2) + "\n")
    else:
        _list(data_console())


def _list(console: Console) -> None:
    """Lists them also if they are wrong, because error messages refer to this list."""
    settings = None
    try:
        settings = load_settings()
    finally:
        console.print(f"[cyan]{CONFIG_VARIABLE}[/]  {CONFIG_REASON}", soft_wrap=True)
        for group, rows in groupby(all_rows(), key=lambda row: row.group):
            console.print(f"\n[bold]\\[{group}][/]  {escape(group_reason(group))}")
            for row in rows:
                _print_row(console, row, settings)


def _print_row(console: Console, row: Row, settings: Settings | None) -> None:
    value = row.default if settings is None else shown(getattr(getattr(settings, row.group), row.name))
    changed = value != row.default
    default = f"  [dim](default: {escape(row.default)})[/]" if changed else ""
    style = "bold yellow" if changed else "green"
    console.print(f"[cyan]{row.variable}[/]=[{style}]{escape(value)}[/]{default}", soft_wrap=True)
    console.print(Padding(f"[dim]{escape(row.kind)}.[/] {escape(row.reason)}", (0, 0, 0, 4)))


def settings_page() -> str:
    """deploy/settings.md: without current values, so it is the same on every machine."""
    lines = [_PAGE_HEAD]
    for group, rows in groupby(all_rows(), key=lambda row: row.group):
        lines += [f"## `[{group}]`\n", f"{group_reason(group)}\n"]
        lines += ["| variable | type, unit, bounds | default | what it is for |", "|---|---|---|---|"]
        lines += [*map(_line, rows), ""]
    return "\n".join(lines)


def _line(row: Row) -> str:
    default = row.default if row.default_in_words else f"`{row.default}`"
    cells = [f"`{row.variable}`", row.kind, default, row.reason]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


@dataclass(frozen=True, slots=True)
class Row:
    """One setting; `kind` is its type with unit and bounds."""

    group: str
    name: str
    variable: str
    kind: str
    default: str
    default_in_words: bool
    """True if the default depends on the machine or is chosen at start."""
    reason: str


def all_rows() -> Iterator[Row]:
    """Every setting, in the order of the classes."""
    for group, group_field in Settings.model_fields.items():
        settings_class = group_field.annotation
        assert settings_class is not None
        for name, field in settings_class.model_fields.items():
            yield Row(
                group=group,
                name=name,
                variable=variable_name(group, name),
                kind=_kind(name, field),
                default=_default(group, name, field),
                default_in_words=(group, name) in _DEFAULTS_IN_WORDS or field.default is None,
                reason=field.description or "",
            )


def group_reason(group: str) -> str:
    """The docstring of the group's class."""
    settings_class = Settings.model_fields[group].annotation
    assert settings_class is not None
    return settings_class.__doc__ or ""


def shown(value: object) -> str:
    """A value as it is written in an environment variable, with secrets masked."""
    if value is None:
        return "automatic"
    if isinstance(value, Mapping):
        return json.dumps(masked(value))
    return json.dumps(value) if isinstance(value, tuple | list) else _CREDENTIALS.sub(rf"\1{MASK}@", str(value))


def masked(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Client properties with the values masked whose names say that they are secret. Names of files are shown."""
    return {
        name: value.model_dump(mode="json") if isinstance(value, FromFile) else MASK if _SECRET.search(name) else value
        for name, value in properties.items()
    }


def _kind(name: str, field: FieldInfo) -> str:
    unit = next((unit for suffix, unit in _UNITS.items() if name.endswith(suffix)), None)
    return ", ".join([unit or _type(field.annotation), *_bounds(field)])


def _type(annotation: Any) -> str:  # noqa: ANN401  any annotation
    if get_origin(annotation) is Literal:
        return " or ".join(f"`{choice}`" for choice in get_args(annotation))
    if get_origin(annotation) in {Union, UnionType}:
        return _type(next(part for part in get_args(annotation) if part is not NoneType))
    if get_origin(annotation) is tuple:
        return f"JSON list of {_type(get_args(annotation)[0])}s"
    if get_origin(annotation) is dict:
        return "JSON object"
    return _TYPES[annotation]


def _bounds(field: FieldInfo) -> list[str]:
    return [
        f"{words} {getattr(bound, attribute):,}"
        for bound in field.metadata
        for attribute, words in _BOUNDS.items()
        if getattr(bound, attribute, None) is not None
    ]


def _default(group: str, name: str, field: FieldInfo) -> str:
    if words := _DEFAULTS_IN_WORDS.get((group, name)):
        return words
    if field.default_factory is None:
        return shown(field.default)
    assert field.default_factory is dict, f"{group}.{name}: describe its default in _DEFAULTS_IN_WORDS"
    return "{}"
