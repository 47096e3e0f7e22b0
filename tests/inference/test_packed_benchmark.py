"""The GPU benchmark where there is no GPU: every step of it with tiny shapes, and what it makes of what it finds."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest
from typer.testing import CliRunner

from enricher.inference.device.cuda import cuda_problem
from tools.bench.gpu.__main__ import app
from tools.bench.gpu.cases import cases, packed_batches, padded_batches
from tools.bench.gpu.checkpoints import SHAPES
from tools.bench.gpu.kernels import kernels_in
from tools.bench.gpu.measure import Figure
from tools.bench.gpu.report import NOT_A_MEASUREMENT, Report

ROOT = Path(__file__).parent.parent.parent
PRINTED = """Operator=PackedMultiHeadAttention Node=layer.0.attention DataType=fp16 SdpaKernel=FLASH_ATTENTION
Operator=PackedMultiHeadAttention Node=layer.1.attention DataType=fp16 SdpaKernel=FLASH_ATTENTION
Operator=Attention Node=Attention_0 DataType=fp16 SdpaKernel=MATH
"""
OURS = Figure("bert-base", "news mix", "packed fp16", 8192, 2, 300.0, 60_000.0, 30.0, 1.1)
STOCK = replace(OURS, leg="padded fp16, stock optimizer", windows_per_s=200.0, tflops=20.0)


@pytest.fixture(autouse=True)
def _children_find_the_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    """As scripts/environment.sh sees to it."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(str(path) for path in (ROOT / "scripts", ROOT)))


def test_a_dry_run_goes_through_every_step_and_says_that_it_measured_nothing(tmp_path: Path) -> None:
    """Both ONNX Runtime legs, both cases, every batch size and number of threads."""
    result = CliRunner().invoke(app, ["measure", "--dry-run", "--windows", "4", "--out", str(tmp_path / "out")])
    assert (0, True) == (result.exit_code, NOT_A_MEASUREMENT in result.stdout), result.output
    found = orjson.loads((tmp_path / "out" / "gpu-benchmark.json").read_bytes())
    legs = {figure["leg"] for figure in found["figures"]}
    assert {"packed fp16 (stand-in)", "padded fp32, stock optimizer"} <= legs
    ours = [figure for figure in found["figures"] if figure["leg"].startswith("packed")]
    assert 2 * 2 * 2 == len(ours)
    assert all(figure["windows_per_s"] > 0 for figure in found["figures"])
    assert found["dry"]
    assert not found["fused"]


@pytest.mark.skipif(cuda_problem() is None, reason="there is a GPU")
def test_without_a_gpu_nothing_is_measured() -> None:
    """It ends with 2 at once, and never takes the CPU instead."""
    result = CliRunner().invoke(app, ["measure"])
    assert (2, "") == (result.exit_code, result.stdout)


def test_preparing_is_timed_in_a_process_of_its_own_and_held_to_its_limits() -> None:
    """The limits are what decides the exit code."""
    assert 0 == CliRunner().invoke(app, ["prepare", "--shape", "tiny"]).exit_code
    assert 1 == CliRunner().invoke(app, ["prepare", "--shape", "tiny", "--limit-gib", "0.001"]).exit_code


def test_the_report_compares_with_ours_and_with_the_peak() -> None:
    """A ratio above one means that packed is faster."""
    page = Report({"GPU": "some"}, dry=False, peak_tflops=100.0, figures=[OURS, STOCK], kernels={}).to_markdown()
    assert "| bert-base | news mix | packed fp16 | 8192 | 2 | 300 | 60000 | 30 | 30% | 1.00x |" in page
    assert "| padded fp16, stock optimizer | 8192 | 2 | 200 | 60000 | 20 | 20% | 1.50x |" in page
    assert NOT_A_MEASUREMENT not in page


@pytest.mark.parametrize(
    ("kernels", "fused"),
    [({"FLASH_ATTENTION": 24}, True), ({"FLASH_ATTENTION": 23, "MATH": 1}, False), ({}, False)],
)
def test_attention_counts_as_fused_only_where_kernels_are_named_and_none_is_the_unfused_one(
    kernels: dict[str, int], *, fused: bool
) -> None:
    """Silence is no proof."""
    assert (
        fused
        == Report({}, dry=False, peak_tflops=1.0, figures=[], kernels={"bert-base": {"packed fp16": kernels}}).fused
    )


def test_kernel_names_are_found_in_what_onnx_runtime_prints() -> None:
    """One line for each time a kernel is chosen."""
    assert {"FLASH_ATTENTION": 2, "MATH": 1} == kernels_in(PRINTED)


def test_operations_are_counted_as_the_products_that_there_are() -> None:
    """Two for each weight and token, and scores and values within the window: 161 GFLOP for XLM-R-large and 256 tokens."""
    assert SHAPES["xlm-r-large"].flops(np.array([256])) == pytest.approx(161.1e9, rel=2e-3)
    assert SHAPES["bert-base"].flops(np.array([256])) == pytest.approx(45.9e9, rel=2e-3)


def test_batches_hold_every_window_once_and_keep_their_limit() -> None:
    """Packed ones count real tokens, padded ones what they are padded to."""
    windows = cases(60)[1].windows(vocabulary=100)
    packed, padded = packed_batches(windows, 2048), padded_batches(windows, 2048)
    for batches in (packed, padded):
        assert sorted(map(id, windows)) == sorted(id(window) for batch in batches for window in batch)
    assert all(sum(window.length_tokens for window in batch) <= 2048 for batch in packed)
    assert all(len(batch) * max(window.length_tokens for window in batch) <= 2048 for batch in padded)
