"""Writes the table of values in the chart's README, between two marks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deploy.chart.generator.comments import Described

BEGIN = "<!-- values: written by scripts/chart from values.yaml -->"
END = "<!-- end of values -->"


def with_table(readme: str, values: Iterable[Described]) -> str:
    """Replace the text between the marks."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table(values)}\n{END}{after}"


def table(values: Iterable[Described]) -> str:
    """A table with one row per described value."""
    rows = [f"| `{'.'.join(each.path)}` | {_default(each.default)} | {_cell(each.description)} |" for each in values]
    return "\n".join(["| value | default | description |", "|---|---|---|", *rows, ""])


def _default(value: Any) -> str:  # noqa: ANN401  whatever the file holds
    return f"`{json.dumps(value)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
