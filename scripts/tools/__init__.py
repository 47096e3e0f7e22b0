"""The Python of the scripts: that of `scripts/NAME` is in `NAME/`. Nothing here ships with the worker."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The repository."""
SCRIPTS = ROOT / "scripts"
ARTICLES = SCRIPTS / "articles" / "wikinews.jsonl"
"""The sample articles."""
