"""The table of the chart's values in Markdown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from deploy.chart.generator.comments import Described


def table(values: Iterable[Described]) -> str:
    """A table with one row per described value."""
    rows = [f"| `{'.'.join(each.path)}` | {_default(each.default)} | {_cell(each.description)} |" for each in values]
    return "\n".join(["| value | default | description |", "|---|---|---|", *rows, ""])


def _default(value: Any) -> str:  # noqa: ANN401  whatever the file holds
    return f"`{json.dumps(value)}`"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
