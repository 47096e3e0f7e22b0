"""The page `deploy/settings.md`: every setting as Markdown. The same on every machine, so no current values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from enricher.commands.settings.rows import Row, all_rows, group_reason
from enricher.settings import CONFIG_REASON, CONFIG_VARIABLE, DEFAULT_CONFIG_FILE

COMMAND = "enricher settings --markdown > deploy/settings.md"

_HEAD = f"""\
# Settings

<!-- Written by `{COMMAND}`; a test compares. Change `enricher/settings/groups.py` instead. -->

Every setting is an environment variable `ENRICHER_GROUP__NAME`, or `name` in the table `[group]` of a TOML file:
`{DEFAULT_CONFIG_FILE}` in the working folder, or the file that `{CONFIG_VARIABLE}` names. From weakest to strongest:
defaults, the TOML file, a `.env` file in the working folder, environment variables. Unknown names are refused.
`enricher settings` shows the values that are in force; `enricher doctor` tries them out. Every command logs the files
that it takes settings from: a `.env` in a working folder that others may write to says which brokers are asked.

| variable | type | default | what it is for |
|---|---|---|---|
| `{CONFIG_VARIABLE}` | path | `{DEFAULT_CONFIG_FILE}`, where it is there | {CONFIG_REASON} |
"""


def settings_page() -> str:
    """The whole page."""
    return "\n".join([_HEAD, *_sections(all_rows())])


def _sections(rows: Iterable[Row]) -> Iterator[str]:
    for group, members in groupby(rows, key=lambda row: row.group):
        yield f"## `[{group}]`\n"
        yield f"{group_reason(group)}\n"
        yield "| variable | type, unit, bounds | default | what it is for |"
        yield "|---|---|---|---|"
        yield from map(_line, members)
        yield ""


def _line(row: Row) -> str:
    cells = [f"`{row.variable}`", row.kind, row.default if row.default_in_words else f"`{row.default}`", row.reason]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
