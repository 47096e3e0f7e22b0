"""`scripts/demo --tasks`: its settings are one pass, and its table has the genres."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from enricher.worker.settings import load_settings
from enricher.worker.wiring.loaded_tasks import plan_tasks
from tools.demo.report import show_tasks, tasks_settings


def test_the_tasks_share_one_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entities and genre are heads on the same encoder."""
    for name, value in tasks_settings(tmp_path, Console(file=io.StringIO())).items():
        monkeypatch.setenv(name, value)
    plan = plan_tasks(load_settings())
    assert ("entities", "genre") == tuple(plan.names)
    assert plan.why_apart is None


def test_the_genre_of_each_article_is_shown() -> None:
    """Of those that have a record."""
    record = {"id": "a", "classifications": [{"task": "genre", "label": "news", "score": 0.9}]}
    shown = io.StringIO()
    articles = [{"id": name, "title": f"<{name}>"} for name in ("a", "b")]
    show_tasks(Console(file=shown, width=150), articles, {"a": record})
    assert [["<a>", "news", "0.90"]] == [line.split() for line in shown.getvalue().splitlines() if line[0:1] == "<"]
