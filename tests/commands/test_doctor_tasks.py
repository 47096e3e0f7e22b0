"""`enricher doctor` about tasks: their models, and which gate report costs which precision."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands.model_app import run_model, tiny_model
from support.heads import class_model, vector_model
from support.topics import QUICK_TO_START

from enricher.operate.doctor.findings import Finding
from enricher.operate.doctor.models import model_findings
from enricher.worker.inference.device.sessions import openvino_problem
from enricher.worker.inference.graph.padded import OpenVinoBfloat16
from enricher.worker.settings import load_settings
from enricher.workshop.gate import verdict

LABELS = ("economy", "politics", "sports")


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """Folders of heads by task: two on one encoder. Graphs are cached in the test's folder."""
    monkeypatch.setenv("ENRICHER_MODEL__CACHE_DIR", str(tmp_path / "cache"))
    for name, value in {**QUICK_TO_START, "ENRICHER_MODEL__DEVICE": "cpu"}.items():
        monkeypatch.setenv(name, value)
    ner = tiny_model(tmp_path / "ner")
    return {"topics": class_model(ner, tmp_path / "topics", LABELS), "vectors": vector_model(ner, tmp_path / "vectors")}


def findings(monkeypatch: pytest.MonkeyPatch, tasks: dict[str, dict[str, object]]) -> dict[str, Finding]:
    """The findings about the models of these tasks, by check."""
    monkeypatch.setenv("ENRICHER_TASKS", json.dumps(tasks))
    return {finding.check: finding for finding in model_findings(load_settings())}


def test_one_article_goes_through_the_heads_of_all_tasks(
    found: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also through a task for another language."""
    tasks: dict[str, dict[str, object]] = {name: {"source": str(folder)} for name, folder in found.items()}
    told = findings(monkeypatch, {**tasks, "topics": {**tasks["topics"], "languages": ["de"]}})
    assert {"model", "device", "precision", "one sentence"} == told.keys()
    assert all(finding.verdict != "FAIL" for finding in told.values())
    assert "topics: topics (" in told["model"].seen
    assert "vectors: vectors (" in told["model"].seen
    sentence = told["one sentence"].seen
    assert any(f"topics {label} " in sentence for label in LABELS)
    assert "vectors of " in sentence


@pytest.mark.skipif(openvino_problem("fp32") is not None, reason=f"{openvino_problem('fp32')}")
def test_the_report_that_keeps_a_worker_in_fp32_is_told(
    found: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First the missing ones with their commands, then the one that failed."""
    monkeypatch.setattr(OpenVinoBfloat16, "problem", lambda _self: openvino_problem("fp32"))
    tasks: dict[str, dict[str, object]] = {name: {"source": str(folder)} for name, folder in found.items()}
    told = findings(monkeypatch, tasks)["precision"]
    assert ("warn", True) == (told.verdict, told.seen.startswith("fp32 "))
    for folder in found.values():
        assert f"enricher model check {folder} --precision bf16" in told.advice
    for name, value in {
        "NEIGHBOURS_OF": 12,
        "LEAST_COSINE": 0.9,
        "LEAST_SAME_TEN": 0.0,
        "MOST_TYPICAL_COSINE": 1.0,
    }.items():
        monkeypatch.setattr(verdict, name, value)
    gold = tmp_path / "gold.jsonl"
    gold.write_text("".join(json.dumps({"text": f"Match {n}.", "label": LABELS[n % 3]}) + "\n" for n in range(12)))
    monkeypatch.delenv("ENRICHER_TASKS")
    for name, code in (("vectors", 0), ("topics", 3)):
        arguments = ("check", found[name], "--gold", gold, "--precision", "bf16", "--device", "cpu")
        result = run_model(*arguments, cache_dir=tmp_path / "cache")
        assert code == result.exit_code, (result.output, result.exception)
    told = findings(monkeypatch, tasks)["precision"]
    assert ("ok", True) == (told.verdict, told.seen.startswith("fp32 "))
    assert "not openvino-bf16: topics: openvino-bf16 failed its gate: " in told.seen
