"""What was tuned counts where it was tuned, and nowhere else."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from support.gpu_driver import FakeDriver
from support.models import open_minilm

from enricher.worker.inference.device.cores import available_cores
from enricher.worker.inference.device.processor import processor_name
from enricher.worker.inference.graph.padded import PaddedFloat32
from enricher.worker.inference.run import tuning as tuning_module
from enricher.worker.inference.run.advice import Advice
from enricher.worker.inference.run.model import PreparedModel, prepare_variant
from enricher.worker.inference.run.tuning import Tuning, tuning_for, write_tuning
from enricher.workshop.tune import _early_batches as early_batches
from enricher.workshop.tune import settings_of


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> PreparedModel:
    """newswire-minilm, padded."""
    return prepare_variant(open_minilm(), PaddedFloat32(), "cpu", cache_dir=tmp_path_factory.mktemp("graphs"))


def _tuning(model: PreparedModel, **changes: object) -> Tuning:
    made = Tuning(
        model_name=model.checkpoint.name,
        model_digest=model.checkpoint.digest,
        variant=model.variant.name,
        device="cpu",
        provider=model.provider,
        processor=processor_name("cpu"),
        cores=available_cores(),
        load_before=None,
        onnxruntime="1",
        created_at="2026-01-01T00:00:00+00:00",
        window_tokens=128,
        rows=(),
        concurrency=3,
        max_batch_tokens=640,
        run_overhead_tokens=0,
        bucket_edges=(64, 128),
        early_overhead=0.0,
    )
    return made.model_copy(update=changes)


def test_a_tuning_of_this_machine_counts(model: PreparedModel, tmp_path: Path) -> None:
    """It is found in whichever of the folders it lies."""
    kept = _tuning(model)
    write_tuning(tmp_path / "cache", kept)
    assert kept == tuning_for(model, 128, [tmp_path, tmp_path / "cache"])


@pytest.mark.parametrize(
    "change",
    [{"model_digest": "0" * 64}, {"processor": "another"}, {"cores": 1000}, {"window_tokens": 64}],
    ids=["model", "processor", "cores", "windows"],
)
def test_a_tuning_of_something_else_does_not_count(
    model: PreparedModel, tmp_path: Path, change: dict[str, object]
) -> None:
    """Batches that suit another machine may be slow here."""
    write_tuning(tmp_path, _tuning(model, **change))
    assert tuning_for(model, 128, [tmp_path]) is None


def test_a_tuning_of_a_gpu_counts_on_gpus_of_that_name(
    model: PreparedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the driver's name for the GPU in use; none counts where the driver gives no name."""
    gpus = FakeDriver(["NVIDIA L4", "NVIDIA H200"]).install(monkeypatch)
    first, second = (replace(model, device="cuda", device_id=index) for index in range(2))
    write_tuning(tmp_path, _tuning(first, device="cuda", processor=processor_name("cuda", 0)))
    assert tuning_for(first, 128, [tmp_path]) is not None
    assert tuning_for(second, 128, [tmp_path]) is None
    gpus.lacks = {"cuDeviceGetName"}
    write_tuning(tmp_path, _tuning(first, device="cuda", processor=processor_name("cuda", 0)))
    assert tuning_for(first, 128, [tmp_path]) is None


def test_a_tuning_that_cannot_be_read_is_left_out(
    model: PreparedModel, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is advice: a worker starts without it, and says so."""
    (tmp_path / _tuning(model).file_name).write_text("{", encoding="utf-8")
    assert tuning_for(model, 128, [tmp_path]) is None
    assert "cannot be read" in caplog.text


def test_a_tuning_of_an_older_version_counts(model: PreparedModel, tmp_path: Path) -> None:
    """It says nothing of early batches: then the worker's default applies."""
    older = _tuning(model).model_dump(mode="json", exclude={"early_overhead", "freshness"})
    (tmp_path / _tuning(model).file_name).write_text(json.dumps(older), "utf-8")
    found = tuning_for(model, 128, [tmp_path])
    assert found is not None
    assert "ENRICHER_BATCHING__EARLY_OVERHEAD" not in settings_of(found)
    assert "" == early_batches(found)
    assert 0.1 == Advice(early_overhead=0.1).with_tuning(found).early_overhead, "the model's own advice stays"


def test_there_need_not_be_one(model: PreparedModel, tmp_path: Path) -> None:
    """Most folders have none."""
    assert tuning_for(model, 128, [tmp_path]) is None
    assert tuning_module.SCHEMA_VERSION == _tuning(model).schema_version


def test_advice_takes_all_that_was_tuned(model: PreparedModel) -> None:
    """And keeps what a tuning does not know: how windows are cut."""
    tuned = Advice(max_window_tokens=128, overlap_tokens=16, concurrency=1).with_tuning(_tuning(model))
    expected = Advice(
        max_window_tokens=128,
        overlap_tokens=16,
        max_batch_tokens=640,
        concurrency=3,
        bucket_edges=(64, 128),
        run_overhead_tokens=0,
        early_overhead=0.0,
    )
    assert expected == tuned
