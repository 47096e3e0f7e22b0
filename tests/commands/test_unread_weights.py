"""A model whose weights would be ignored is refused alike by the commands, by `doctor` and in Python programs."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from commands.model_app import run_model, tiny_model
from safetensors.numpy import load_file, save_file

from enricher import Enricher
from enricher.errors import ModelError
from enricher.operate.doctor.models import model_findings
from enricher.worker.settings import load_settings

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


def test_doctor_and_python_name_the_unread_weights(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the finding about the model, and in the error of `load`."""
    with pytest.raises(ModelError, match=re.escape(NAMED)):
        Enricher.load(folder)
    monkeypatch.setenv("ENRICHER_MODEL__SOURCE", str(folder))
    monkeypatch.setenv("ENRICHER_MODEL__CACHE_DIR", str(tmp_path / "cache"))
    (finding,) = [each for each in model_findings(load_settings()) if each.verdict == "FAIL"]
    assert "model" == finding.side
    assert NAMED in finding.seen
