"""`scripts/demo --tasks`: its settings are one pass, and its table reads both forms of a vector."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from enricher.worker.settings import load_settings
from enricher.worker.wiring.loaded_tasks import plan_tasks
from tools.demo.report import Outcome, show_tasks, tasks_settings, vector_of


def test_the_three_tasks_share_one_encoder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entities, genre and vectors are heads on the same encoder."""
    for name, value in tasks_settings(tmp_path, Console(file=io.StringIO())).items():
        monkeypatch.setenv(name, value)
    plan = plan_tasks(load_settings())
    assert ("entities", "genre", "vectors") == tuple(plan.names)
    assert plan.why_apart is None


def test_the_nearest_article_is_found_by_vectors_of_either_form() -> None:
    """float16 in base64 and a list of numbers are the same vector."""
    half = base64.b64encode(np.array([0.6, 0.8], "<f2").tobytes()).decode()
    values: dict[str, dict[str, Any]] = {
        "a": {"vector": [1.0, 0.0]},
        "b": {"vector": [0.0, 1.0]},
        "c": {"vector_float16": half},
    }
    assert [0.6, 0.8] == pytest.approx(vector_of({"embeddings": [values["c"]]}).tolist(), abs=1e-3)
    classes = [{"task": "genre", "label": "news", "score": 0.9}]
    outcomes = [
        Outcome({"id": name, "classifications": classes, "embeddings": [vector]}, 0.1)
        for name, vector in values.items()
    ]
    shown = io.StringIO()
    show_tasks(Console(file=shown, width=150), [{"id": name, "title": f"<{name}>"} for name in values], outcomes)
    rows = [line.split() for line in shown.getvalue().splitlines() if line.startswith("<")]
    assert [["<a>", "<c>"], ["<b>", "<c>"], ["<c>", "<b>"]] == [row[:2] for row in rows]
