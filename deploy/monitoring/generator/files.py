"""Where the files of `deploy/monitoring/` are."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "deploy" / "monitoring"
DASHBOARD = FOLDER / "dashboard.json"
ALERTS = FOLDER / "alerts.yaml"
RECORDING = FOLDER / "recording.yaml"
RUNBOOK = FOLDER / "runbook.md"
QUERIES_SEEN = FOLDER / "queries-seen.md"
RULE_TESTS = FOLDER / "tests"
