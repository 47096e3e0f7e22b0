"""Where the monitoring files are. Rules and dashboard are in the chart, since Helm cannot read files outside of it."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "deploy" / "monitoring"
IN_CHART = ROOT / "deploy" / "chart" / "files"
DASHBOARD = IN_CHART / "dashboard.json"
ALERTS = IN_CHART / "alerts.yaml"
RECORDING = IN_CHART / "recording.yaml"
RUNBOOK = FOLDER / "runbook.md"
RULE_TESTS = FOLDER / "tests"
