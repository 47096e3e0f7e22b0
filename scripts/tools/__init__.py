"""The Python code of the scripts: `scripts/NAME` runs `tools.NAME`. Nothing here ships with the worker."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The root of the repository."""
SCRIPTS = ROOT / "scripts"
ARTICLES = ROOT / "enricher" / "models" / "articles" / "wikinews.jsonl"
"""The sample articles."""
MINILM = ROOT / "tests" / "data" / "newswire-minilm"
"""The model that the references in tests/data/reference/ are of; it is not installed."""


def python_path() -> str:
    """PYTHONPATH for a process that runs a module of ours: the scripts come first."""
    return os.pathsep.join([str(SCRIPTS), *filter(None, [os.environ.get("PYTHONPATH")])])
