"""`enricher.json`: the windows that suit a model."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands.model_app import tiny_model

from enricher.errors import ModelError, SettingsError
from enricher.worker.inference.run.advice import ADVICE_FILE, Advice, advice_for, measured_languages
from enricher.worker.inference.run.model import EMBEDDED_FOLDER
from enricher.worker.settings import Settings
from enricher.worker.wiring.loaded_tasks import load_tasks, window_cutter
from tools.worker_parts import load_model


def write(folder: Path, **values: object) -> Path:
    """Write the file."""
    (folder / ADVICE_FILE).write_text(json.dumps(values))
    return folder


def _advice(max_window_tokens: int, overlap_tokens: int) -> Advice:
    return Advice(max_window_tokens=max_window_tokens, overlap_tokens=overlap_tokens)


def test_without_a_file_there_are_defaults_within_what_the_model_takes(tmp_path: Path) -> None:
    """Windows are never longer than the model's own limit."""
    assert _advice(256, 64) == advice_for(tmp_path, 512)
    assert _advice(160, 40) == advice_for(tmp_path, 160)


def test_the_default_overlap_suits_short_windows(tmp_path: Path) -> None:
    """A model of 128 positions, or whose tokenizer says so, starts without further settings."""
    assert _advice(128, 32) == advice_for(tmp_path, 128)
    assert _advice(100, 25) == advice_for(write(tmp_path, max_window_tokens=100), 512)
    assert _advice(100, 60) == advice_for(write(tmp_path, max_window_tokens=100, overlap_tokens=60), 512)


def test_languages_are_those_that_the_file_names(tmp_path: Path) -> None:
    """There are none without a file; a file that names some says which were measured."""
    assert measured_languages(tmp_path) == ()
    assert ("de", "en") == measured_languages(write(tmp_path, languages={"measured": ["de", "en"]}))
    with pytest.raises(ModelError, match=r"languages\.measured: Field required"):
        measured_languages(write(tmp_path, languages={"trained": ["en"]}))
    assert ("de", "en", "zh") == measured_languages(EMBEDDED_FOLDER)


@pytest.mark.slow
@pytest.mark.parametrize("in_a_task", [False, True], ids=["without tasks", "in a task"])
def test_advice_is_cut_to_what_the_tokenizer_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, in_a_task: bool
) -> None:
    """Whose limit shows only when it is loaded."""
    folder = write(tiny_model(tmp_path / "model"), max_window_tokens=128)
    config = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    (folder / "tokenizer_config.json").write_text(json.dumps({**config, "model_max_length": 48}))
    monkeypatch.setenv("ENRICHER_MODEL__CACHE_DIR", str(tmp_path / "cache"))
    if in_a_task:
        monkeypatch.setenv("ENRICHER_TASKS", json.dumps({"names": {"source": str(folder)}}))
    else:
        monkeypatch.setenv("ENRICHER_MODEL__SOURCE", str(folder))
    monkeypatch.setenv("ENRICHER_MODEL__PRECISION", "fp32")
    served = load_tasks(Settings())
    assert 48 == window_cutter(served.settings, served.model).max_window_tokens


def test_windows_that_hold_no_text_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tokens are the special ones of a window; the first article would end the worker."""
    folder = write(tiny_model(tmp_path / "model"), max_window_tokens=2)
    monkeypatch.setenv("ENRICHER_MODEL__SOURCE", str(folder))
    monkeypatch.setenv("ENRICHER_MODEL__PRECISION", "fp32")
    monkeypatch.setenv("ENRICHER_MODEL__CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(SettingsError, match="a window of 2 tokens holds no text"):
        load_model(Settings())


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"max_windows": 3}, "max_windows: .* a JSON object with max_window_tokens"),
        ({"max_window_tokens": "128"}, "max_window_tokens: .* integer"),
        ({"max_batch_tokens": 512}, "max_batch_tokens: .* a JSON object with max_window_tokens"),
        ({"overlap_tokens": -1}, "overlap_tokens: .* greater than or equal to 0"),
    ],
)
def test_a_malformed_file_is_refused_with_the_reason(tmp_path: Path, values: dict[str, object], problem: str) -> None:
    """It is not ignored, because its author wanted it to have an effect."""
    with pytest.raises(ModelError, match=problem):
        advice_for(write(tmp_path, **values), 512)


def test_a_mistake_of_the_whole_file_names_the_file_only(tmp_path: Path) -> None:
    """Nothing stands where a field's name would."""
    (tmp_path / ADVICE_FILE).write_text("[]")
    with pytest.raises(ModelError, match=rf"{ADVICE_FILE}: Input should be an object"):
        advice_for(tmp_path, 512)
