"""`enricher model check` and `inspect`: verdict, exit code and report."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from commands.model_app import run_model, tiny_model
from safetensors.numpy import load_file, save_file
from support.reports import empty_recipe

from enricher.errors import ModelError, SettingsError
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.sessions import openvino_problem
from enricher.worker.inference.graph.int8 import write_recipe
from enricher.worker.inference.graph.padded import OpenVinoInt8
from enricher.worker.inference.run import selection
from enricher.worker.inference.run.model import EMBEDDED, open_model
from enricher.workshop.gate.gold import DEFAULT_GOLD
from enricher.workshop.gate.report import GateReport


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small model, in a folder of the test's own, with a recipe."""
    folder = tiny_model(tmp_path / "tiny")
    write_recipe(folder, empty_recipe(Checkpoint.open(folder)))
    return folder


@pytest.fixture
def gold(tmp_path: Path) -> Path:
    """Some labelled sentences."""
    path = tmp_path / "gold.jsonl"
    path.write_bytes(b"".join(DEFAULT_GOLD.read_bytes().splitlines(keepends=True)[:6]))
    return path


@pytest.fixture
def runs_anywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """The recipe quantises nothing, so that any processor that OpenVINO runs on gives right answers."""
    monkeypatch.setattr(OpenVinoInt8, "problem", lambda _self: openvino_problem("fp32"))


@pytest.mark.usefixtures("runs_anywhere")
def test_a_failed_check_ends_with_code_3_and_leaves_its_report(model: Path, gold: Path, tmp_path: Path) -> None:
    """The reasons are told; the report lies in the cache, never beside the model, and can be taken back."""
    cache, before = tmp_path / "cache", sorted(model.iterdir())
    check = ("check", model, "--gold", gold, "--precision", "int8", "--limit-points", "50")
    result = run_model(*check, "--dry-run", cache_dir=cache)
    assert (3, []) == (result.exit_code, list(cache.rglob("gate-*"))), result.output
    result = run_model(*check, cache_dir=cache)
    assert result.exit_code == 3, result.output
    assert "does not fit the model" in re.sub(r"\s+", " ", result.output)
    (path,) = cache.rglob("gate-openvino-int8.json")
    assert str(path) in result.stderr.replace("\n", "")
    report = GateReport.model_validate_json(path.read_bytes())
    assert not report.passed
    assert (6, "gold") == (report.comparisons[0].texts, report.bound_to.gold_name)
    assert before == sorted(model.iterdir())
    assert 0 == run_model("check", model, "--undo", cache_dir=cache).exit_code
    assert [] == list(cache.rglob("gate-*"))
    assert 3 == run_model(*check, "--out", model, cache_dir=cache).exit_code
    assert (model / path.name).is_file()


def test_too_few_entities_are_refused_before_a_report_is_written(model: Path, gold: Path, tmp_path: Path) -> None:
    """A failed report would replace one that has passed, and workers would serve fp32 from their next start on."""
    result = run_model("check", model, "--gold", gold, cache_dir=tmp_path / "cache")
    assert isinstance(result.exception, SettingsError)
    assert "at least 334 are needed" in str(result.exception)
    assert [] == list((tmp_path / "cache").rglob("gate-*"))


@pytest.mark.usefixtures("runs_anywhere")
def test_a_passed_check_ends_with_code_0_and_inspect_says_so(
    model: Path, gold: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is the user's; a model without skill is let through here only because the test lets it."""
    monkeypatch.setattr("enricher.workshop.gate.verdict.LEAST_REFERENCE_F1", 0.0)
    cache = tmp_path / "cache"
    check = run_model("check", model, "--gold", gold, "--precision", "int8", "--limit-points", "100", cache_dir=cache)
    assert check.exit_code == 0, check.output
    inspect = run_model("inspect", model, "--device", "cpu", "--json", cache_dir=cache)
    variants = {variant["precision"]: variant for variant in json.loads(inspect.stdout)["variants"]}
    assert variants["int8"]["may_serve"]
    assert variants["fp32"]["may_serve"]


def test_fp32_needs_no_check_and_a_variant_of_elsewhere_cannot_be_checked(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Usage, and the machine: two different exit codes."""
    cache = tmp_path / "cache"
    assert isinstance(run_model("check", model, "--precision", "fp32", cache_dir=cache).exception, SettingsError)
    monkeypatch.setattr(OpenVinoInt8, "problem", lambda _self: "the processor has no VNNI")
    error = run_model("check", model, "--precision", "int8", "--device", "cpu", cache_dir=cache).exception
    assert isinstance(error, ModelError)
    assert "the processor has no VNNI" in str(error)


def test_inspect_tells_what_a_model_is(tmp_path: Path) -> None:
    """The embedded one, for people and for machines."""
    shown = run_model("inspect", "--device", "cpu", cache_dir=tmp_path)
    assert shown.exit_code == 0, shown.output
    assert open_model(EMBEDDED).digest in shown.stdout
    facts = json.loads(run_model("inspect", "--device", "cpu", "--json", cache_dir=tmp_path).stdout)
    assert (EMBEDDED, "bert", 6, 128, 16) == tuple(
        facts[name] for name in ("name", "family", "layers", "window_tokens", "overlap_tokens")
    )
    assert (["de", "en", "zh"], ["en", "pt", "sv", "zh"]) == (
        facts["languages_measured"],
        facts["languages_trained"],
    )
    assert [variant.name for variant in selection.variants_for("cpu")] == [
        variant["variant"] for variant in facts["variants"]
    ]
    assert sum(variant["chosen_by_auto"] for variant in facts["variants"]) == 1


NAMED = (
    "2 of 57 weights would be ignored, and its answers may depend on them (crf.start_transitions, crf.transitions). "
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model with a CRF over its labels."""
    made = tiny_model(tmp_path / "model")
    crf = {"crf.transitions": np.ones((7, 7), np.float32), "crf.start_transitions": np.ones(7, np.float32)}
    save_file({**load_file(made / "model.safetensors"), **crf}, made / "model.safetensors")
    return made


@pytest.mark.parametrize("command", ["inspect", "prepare", "check"])
def test_commands_about_models_name_the_unread_weights(command: str, folder: Path, tmp_path: Path) -> None:
    """Before anything is built or written."""
    options = ("--out", tmp_path / "out") if command == "prepare" else ()
    result = run_model(command, folder, *options, cache_dir=tmp_path / "cache")
    assert isinstance(result.exception, ModelError)
    assert NAMED in str(result.exception)
    assert not (tmp_path / "cache").exists()
    assert not (tmp_path / "out").exists()
