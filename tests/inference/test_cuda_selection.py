"""Which variant serves on a GPU: packed fp16 with a report, packed fp32 without one, padded ones for what neither takes."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from inference.exports import write_export
from support.reports import report

from enricher.errors import ModelError
from enricher.operate.doctor import models as doctor
from enricher.operate.doctor.findings import Finding
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.sessions import arithmetic_of
from enricher.worker.inference.graph import packed_cuda, padded
from enricher.worker.inference.graph.packed_cuda import PackedCudaFloat32, PackedFloat16
from enricher.worker.inference.graph.padded import PaddedFloat16, PaddedFloat32
from enricher.worker.inference.run import model
from enricher.worker.inference.run.model import open_model, prepare
from enricher.worker.inference.run.selection import choose, missing_reports
from enricher.workshop.gate.report import write_report
from tools.bench.gpu.checkpoints import Shape, write_checkpoint

SHAPE = Shape(
    model_type="bert",
    vocab_size=97,
    hidden_size=64,
    num_hidden_layers=1,
    num_attention_heads=2,
    intermediate_size=40,
    max_position_embeddings=130,
)
PADDED = PaddedFloat32(runtime="cuda")
ARITHMETIC = arithmetic_of("cuda")


@pytest.fixture(autouse=True)
def _gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """CUDA works, as far as choosing a variant goes."""
    monkeypatch.setattr(packed_cuda, "_cuda_problem", lambda: None)
    monkeypatch.setattr(padded, "cuda_problem", lambda: None)
    monkeypatch.setattr(model, "resolve_device", lambda *_asked: "cuda")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """A model without any report."""
    return open_model(write_checkpoint(tmp_path / "model", SHAPE))


def with_heads(folder: Path, size: int) -> Checkpoint:
    """A model with two heads of that size."""
    return open_model(write_checkpoint(folder, replace(SHAPE, hidden_size=2 * size)))


def test_the_built_in_model_has_no_report_yet_and_runs_packed_in_fp32() -> None:
    """It says how to make one, which needs a GPU."""
    checkpoint = open_model(None)
    choice = choose([checkpoint], "cuda", "auto")
    assert PackedCudaFloat32() == choice.variant
    command = f"enricher model check {checkpoint.folder} --precision fp16 --device cuda"
    assert {
        "packed-fp16": f"there is no gate report for packed-fp16; `{command}` makes one",
        "padded-fp16": "padded fp16 is not built for bert",
    } == {variant.name: why for variant, why in choice.rejected}


def test_with_a_passing_report_fp16_serves(checkpoint: Checkpoint) -> None:
    """A report about packed fp32 is nobody's."""
    write_report(checkpoint.folder, report(checkpoint, PackedCudaFloat32(), arithmetic=ARITHMETIC))
    assert PackedCudaFloat32() == choose([checkpoint], "cuda", "auto").variant
    write_report(checkpoint.folder, report(checkpoint, PackedFloat16(), arithmetic=ARITHMETIC))
    assert PackedFloat16() == choose([checkpoint], "cuda", "auto").variant


@pytest.mark.parametrize("size", [8, 24, 64, 256])
def test_heads_that_a_fused_kernel_takes_run_packed(size: int, tmp_path: Path) -> None:
    """Multiples of 8 up to FlashAttention's largest."""
    assert PackedCudaFloat32() == choose([with_heads(tmp_path / "model", size)], "cuda", "auto").variant


@pytest.mark.parametrize("size", [4, 20, 36, 264])
def test_other_heads_run_padded_in_fp32_and_no_report_is_asked_for(size: int, tmp_path: Path) -> None:
    """By auto and by name; fp16 is refused with the size, even with a report."""
    odd = with_heads(tmp_path / "model", size)
    write_report(odd.folder, report(odd, PackedFloat16(), arithmetic=ARITHMETIC))
    choice = choose([odd], "cuda", "auto")
    assert PADDED == choice.variant == choose([odd], "cuda", "fp32").variant
    packed = {variant.name: why for variant, why in choice.rejected if variant.packs}
    assert ["packed-fp16", "packed-cuda-fp32"] == list(packed)
    assert all(f"heads have size {size}" in why for why in packed.values())
    assert [] == missing_reports([odd], "cuda", None)
    with pytest.raises(ModelError, match=rf"fp16 does not run here: its attention heads have size {size}"):
        choose([odd], "cuda", "fp16")


def test_a_model_that_is_onnx_already_runs_padded(tmp_path: Path) -> None:
    """The choice names the variant that runs, and nothing is said of heads, which its configuration may lack."""
    odd = open_model(write_export("bert", None, tmp_path / "exported"))
    choice = choose([odd], "cuda", "auto")
    assert PADDED == choice.variant == choose([odd], "cuda", "fp32").variant
    assert all("runs padded" in why for variant, why in choice.rejected if variant.packs)
    command = f"enricher model check {odd.folder} --precision fp16 --device cuda"
    assert [command] == missing_reports([odd], "cuda", None)
    with pytest.raises(ModelError, match=f"fp16 is refused: there is no gate report for padded-fp16; `{command}`"):
        choose([odd], "cuda", "fp16")
    write_report(odd.folder, report(odd, PaddedFloat16(), arithmetic=ARITHMETIC))
    assert PaddedFloat16() == choose([odd], "cuda", "auto").variant == choose([odd], "cuda", "fp16").variant
    write_report(odd.folder, report(odd, PaddedFloat16(), passed=False, arithmetic=ARITHMETIC))
    assert PADDED == choose([odd], "cuda", "auto").variant


def test_the_log_says_what_is_lost_without_the_report_and_how_to_make_it(
    checkpoint: Checkpoint, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning with the command and a factor that is called calculated; none once the report is there."""
    with caplog.at_level(logging.INFO, logger="enricher"):
        prepared = prepare(checkpoint.folder, device="cuda", precision="auto", cache_dir=tmp_path / "cache")
    assert PackedCudaFloat32() == prepared.variant
    (warning,) = (each.getMessage() for each in caplog.records if each.levelno == logging.WARNING)
    assert f"`enricher model check {checkpoint.folder} --precision fp16 --device cuda` makes one. " in warning
    assert "three to ten times as fast" in warning
    write_report(checkpoint.folder, report(checkpoint, PackedFloat16(), arithmetic=ARITHMETIC))
    caplog.clear()
    prepared = prepare(checkpoint.folder, device="cuda", precision="auto", cache_dir=tmp_path / "cache")
    assert (PackedFloat16(), []) == (prepared.variant, [each for each in caplog.records if each.levelno > logging.INFO])


def test_the_doctor_says_the_same(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """A warning with the factor and the command; for a model that only runs padded there is nothing to make."""
    finding = _finding(checkpoint.folder, tmp_path)
    assert "warn" == finding.verdict
    assert "fp32 (packed-cuda-fp32;" in finding.seen
    assert "three to ten times as fast" in finding.advice
    assert finding.advice.endswith(
        f"To make it: enricher model check {checkpoint.folder} --precision fp16 --device cuda"
    )
    odd = with_heads(tmp_path / "odd", 20)
    finding = _finding(odd.folder, tmp_path)
    assert "ok" == finding.verdict
    assert "heads have size 20" in finding.seen


def _finding(folder: Path, scratch: Path) -> Finding:
    settings = SimpleNamespace(model=SimpleNamespace(precision="auto", cache_dir=scratch / "cache"))
    prepared = prepare(folder, device="cuda", precision="auto", cache_dir=scratch / "cache")
    served: Any = SimpleNamespace(
        model=SimpleNamespace(prepared=prepared), settings=settings, cards=(SimpleNamespace(name="names"),)
    )
    return doctor._precision(served)
