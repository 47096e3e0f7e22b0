"""The commands about models, on heads of other kinds and on several tasks."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands.model_app import run_model, tiny_model
from safetensors.numpy import load_file, save_file
from support.heads import class_model, vector_model

from enricher.errors import FatalError, ModelError
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.sessions import openvino_problem
from enricher.workshop.gate.report import GateReport

LABELS = ("economy", "politics", "sports")
ENCODER_WEIGHT = "bert.encoder.layer.1.output.dense.bias"


@pytest.fixture
def folders(tmp_path: Path) -> dict[str, Path]:
    """Three heads on one encoder, and a fourth on an encoder with one other weight."""
    ner = tiny_model(tmp_path / "ner")
    topics = class_model(ner, tmp_path / "topics", LABELS)
    other = class_model(ner, tmp_path / "other", LABELS, multi_label=True)
    weights = load_file(other / "model.safetensors")
    weights[ENCODER_WEIGHT] = weights[ENCODER_WEIGHT].copy()
    weights[ENCODER_WEIGHT][0] += np.float32(0.5)
    save_file(weights, other / "model.safetensors")
    return {"ner": ner, "topics": topics, "vectors": vector_model(ner, tmp_path / "vectors"), "other": other}


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    """Texts with topics."""
    path = tmp_path / "gold.jsonl"
    words = ("The budget grew", "The vote failed", "The match ended")
    lines = [{"text": f"{words[number % 3]} in {number}.", "label": LABELS[number % 3]} for number in range(12)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def inspected(*sources: Path, cache_dir: Path, env: dict[str, str] | None = None) -> dict[str, Any]:
    """What `inspect --json` says."""
    result = run_model("inspect", *sources, "--device", "cpu", "--json", cache_dir=cache_dir, env=env)
    assert result.exit_code == 0, (result.output, result.exception)
    shown: dict[str, Any] = json.loads(result.stdout)
    return shown


def test_inspect_tells_what_each_kind_of_head_finds(folders: dict[str, Path], tmp_path: Path) -> None:
    """Labels and pooling; heads on one encoder have one encoder digest and digests of their own."""
    facts = {name: inspected(folder, cache_dir=tmp_path) for name, folder in folders.items()}
    assert ("ner", None, None) == tuple(facts["ner"][each] for each in ("kind", "multi_label", "pooling"))
    assert ("classification", [*LABELS], False) == tuple(
        facts["topics"][each] for each in ("kind", "labels", "multi_label")
    )
    assert facts["other"]["multi_label"]
    assert ("embedding", None, "mean of all tokens", False) == tuple(
        facts["vectors"][each] for each in ("kind", "labels", "pooling", "normalised")
    )
    assert 2 == len({each["encoder_digest"] for each in facts.values()})
    assert 4 == len({each["digest"] for each in facts.values()})
    shown = run_model("inspect", folders["vectors"], "--device", "cpu", cache_dir=tmp_path)
    assert "int8 is calibrated for a single token classification head" in " ".join(shown.stdout.split())


@pytest.mark.skipif(openvino_problem("bf16") is not None, reason="the processor has no bf16 units")
def test_check_without_a_folder_checks_the_models_of_all_tasks(
    folders: dict[str, Path], labelled: Path, tmp_path: Path
) -> None:
    """Each once; --undo takes all of their reports away."""
    tasks = {name: {"source": str(folders[name])} for name in ("topics", "vectors")}
    env = {"ENRICHER_TASKS": json.dumps({**tasks, "again": {"source": str(folders["topics"])}})}
    arguments = ("check", "--device", "cpu", "--precision", "bf16", "--gold", labelled)
    result = run_model(*arguments, cache_dir=tmp_path / "cache", env=env)
    assert result.exit_code in {0, ModelError.exit_code}, (result.output, result.exception)
    reports = [GateReport.model_validate_json(path.read_bytes()) for path in (tmp_path / "cache").glob("*/gate-*.json")]
    assert {"topics", "vectors"} == {each.bound_to.model_name for each in reports}
    assert 2 == len(reports)
    run_model("check", "--undo", cache_dir=tmp_path / "cache", env=env)
    assert [] == [*(tmp_path / "cache").glob("*/gate-*.json")]


@pytest.mark.parametrize("name", ["topics", "vectors"])
def test_prepare_makes_a_folder_of_every_kind(folders: dict[str, Path], tmp_path: Path, name: str) -> None:
    """Complete: the same digest, the graph, and what describes the head."""
    out = tmp_path / "out"
    arguments = ("--out", out, "--device", "cpu", "--precision", "fp32")
    result = run_model("prepare", folders[name], *arguments, cache_dir=tmp_path / "cache")
    assert result.exit_code == 0, (result.output, result.exception)
    assert Checkpoint.open(folders[name]).digest == Checkpoint.open(out).digest
    assert replace(Checkpoint.open(folders[name]).head) == Checkpoint.open(out).head
    assert 1 == len(list(out.glob("graphs/*/model.onnx")))
    assert [] == inspected(out, cache_dir=tmp_path)["manifest_problems"]


def test_what_a_head_cannot_be_asked_is_refused(folders: dict[str, Path], labelled: Path, tmp_path: Path) -> None:
    """With the reason: int8, entities where classes are needed, and the other way round."""
    entities = tmp_path / "entities.jsonl"
    entities.write_text('{"text": "In Rome", "entities": []}\n')
    for arguments, error, message in (
        (
            ("prepare", folders["topics"], "--out", tmp_path / "out", "--precision", "int8"),
            ModelError,
            "a single token",
        ),
        (("check", folders["topics"], "--precision", "int8"), ModelError, "int8 is calibrated for a single token"),
        (("check", folders["ner"], "--gold", labelled), FatalError, "entities"),
        (("check", folders["other"], "--gold", entities), FatalError, "`label` and `labels`"),
    ):
        with pytest.raises(error, match=message):
            raise run_model(*arguments, "--device", "cpu", cache_dir=tmp_path / "cache").exception or OSError
    assert not (tmp_path / "out").exists()
