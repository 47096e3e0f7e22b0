"""The generated files of the chart, as path and text. Writes nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from deploy.chart.generator import schema
from deploy.chart.generator.layout import DEFAULTS, SCHEMA

if TYPE_CHECKING:
    from pathlib import Path


def made() -> dict[Path, str]:
    """The text that each generated file should have."""
    return {
        SCHEMA: _json(schema.values_schema()),
        DEFAULTS: _json(schema.defaults()),
    }


def stale() -> list[Path]:
    """The files whose text is not as it should be."""
    return [path for path, text in made().items() if not path.is_file() or path.read_text("utf-8") != text]


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
