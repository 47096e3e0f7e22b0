"""The Python code of the scripts: `scripts/NAME` runs `tools.NAME`. Nothing here ships with the worker."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The root of the repository."""
SCRIPTS = ROOT / "scripts"
ARTICLES = ROOT / "enricher" / "models" / "articles" / "wikinews.jsonl"
"""The sample articles."""
