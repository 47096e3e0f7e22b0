"""Prints tables and writes figures, for every bench."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import orjson
from rich.console import Console
from rich.table import Table as RichTable

from tools.bench.outcome import Table


def print_tables(console: Console, tables: Iterable[Table]) -> None:
    """Print each; the first column is text, the others are numbers."""
    for table in tables:
        drawn = RichTable(title=table.title, caption=table.note or None, title_justify="left", caption_justify="left")
        for index, column in enumerate(table.columns):
            drawn.add_column(column, justify="right" if index else "left")
        for row in table.rows:
            drawn.add_row(*row)
        console.print(drawn)


def write_figures(path: Path, figures: Mapping[str, Any]) -> None:
    """Write them as indented JSON; the folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(orjson.dumps(figures, option=orjson.OPT_INDENT_2) + b"\n")
