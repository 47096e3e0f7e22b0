"""Where the chart lies, and what it is made from."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "deploy" / "chart"
MONITORING = ROOT / "deploy" / "monitoring"
REST = Path(__file__).with_name("rest.yaml")

VALUES = CHART / "values.yaml"
SCHEMA = CHART / "values.schema.json"
README = CHART / "README.md"
DEFAULTS = CHART / "files" / "settings-defaults.json"

COPIES = {MONITORING / name: CHART / "files" / name for name in ("alerts.yaml", "recording.yaml", "dashboard.json")}
"""Files that a chart cannot reach where they are: from, to."""
