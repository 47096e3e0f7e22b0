"""Where the files of the chart are."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "deploy" / "chart"
REST = Path(__file__).with_name("rest.yaml")

VALUES = CHART / "values.yaml"
SCHEMA = CHART / "values.schema.json"
DEFAULTS = CHART / "files" / "settings-defaults.json"
