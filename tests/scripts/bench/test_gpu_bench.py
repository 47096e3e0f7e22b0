"""scripts/bench gpu where there is no GPU: tiny shapes, what ends a step, the tables; and what is carried there."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import orjson
import pytest
import typer
from typer.testing import CliRunner

from enricher.worker.inference.device.hardware import cuda_problem
from tools import ARTICLES, MINILM, ROOT, SCRIPTS
from tools.bench.__main__ import app_of
from tools.bench.gpu.carry import FOR_PEERS, LACKING, SECTION, checkout_files, locked, trim
from tools.bench.gpu.checkpoints import SHAPES
from tools.bench.gpu.legs import PACKED_FP16, PACKED_FP32, STOCK
from tools.bench.gpu.report import NOT_A_MEASUREMENT, NOT_RUN, outcome
from tools.bench.gpu.rows import GpuBench
from tools.bench.gpu.steps import STEPS, Step, run_steps
from tools.bench.outcome import ROWS_FILE, Row, read_rows
from tools.bench.peers.line_up import COMPILED, IN_PROCESS, OVER_HTTP, PIPELINE
from tools.bench.peers.results import BARE, STEP
from tools.bench.peers.results import OURS as WORKER

QUESTIONS = {step.name: step.question for step in STEPS}
OURS: Row = {
    "step": "stock",
    "leg": "packed-fp16",
    "shape": "bert-base",
    "case": "news, sorted",
    "tokens_per_s": 60_000.0,
    "tflops": 30.0,
    "power_w": 650.0,
    "sm_mhz": 1500.0,
}
THEIRS = OURS | {"leg": STOCK, "tokens_per_s": 40_000.0, "tflops": 20.0}
PEAK: Row = {"step": "peak", "precision": "fp16", "tflops": 100.0, "sustained": True}
needs_no_gpu = pytest.mark.skipif(cuda_problem() is None, reason="there is a GPU")


def bench_gpu(*arguments: str, python: str = sys.executable) -> subprocess.CompletedProcess[str]:
    """The script, with an interpreter from outside: nothing is set up, and no network is needed."""
    command = [str(SCRIPTS / "bench"), "gpu", *arguments]
    return subprocess.run(
        command, env=os.environ | {"ENRICHER_PYTHON": python}, capture_output=True, text=True, check=False
    )


def hangs(bench: GpuBench) -> None:
    """A step that never ends."""
    bench.add(value=1)
    signal.pause()


def fails(bench: GpuBench) -> None:
    """A step with a mistake."""
    bench.add(value=2)
    message = "no such kernel"
    raise RuntimeError(message)


def crashes(bench: GpuBench) -> None:
    """A step that takes its process with it, as a fault in a driver does."""
    del bench
    os.kill(os.getpid(), signal.SIGKILL)


def answers(bench: GpuBench) -> None:
    """A step that works."""
    bench.add(value=3)


@pytest.mark.long
def test_a_dry_run_goes_through_every_step_and_measures_nothing(tmp_path: Path) -> None:
    """Every step answers or says why not; figures of a GPU are missing, and the tables say so."""
    steps = [name for name in QUESTIONS if name != STEP]
    done = bench_gpu("--dry", *steps, "--out", str(tmp_path / "out"))
    assert 0 == done.returncode, done.stderr
    rows = read_rows(tmp_path / "out")
    assert steps == [*dict.fromkeys(row["step"] for row in rows)]
    assert [] == [row for row in rows if "failed" in row or "late" in row or not row["dry"]]
    legs = {row["leg"] for row in rows if "leg" in row}
    assert {PACKED_FP16.name, PACKED_FP32.name, STOCK} <= legs
    assert NOT_A_MEASUREMENT in " ".join(done.stdout.split())
    assert ["xlm-r-large: packed-fp16", *[NOT_RUN] * 4] in outcome(rows, QUESTIONS).tables[0].rows
    assert orjson.loads((tmp_path / "out" / "tune.json").read_bytes())


@pytest.mark.long
@pytest.mark.broker
def test_the_peers_of_a_gpu_run_dry_and_find_what_the_worker_finds(tmp_path: Path) -> None:
    """On a tiny model and 20 articles; who lacks PyTorch is told so instead of a number."""
    done = bench_gpu("--dry", STEP, "--out", str(tmp_path))
    assert 0 == done.returncode, done.stderr
    rows = read_rows(tmp_path)
    measured = {row["worker"]: row["in_headlines_f1"] for row in rows if "not_measured" not in row}
    theirs = {IN_PROCESS.format("fp32"), OVER_HTTP.format("fp32")}
    assert {WORKER, BARE} | theirs <= measured.keys(), "float16 is float32 in a dry run"
    assert all(measured[name] > 0.9 for name in theirs)
    assert {PIPELINE.format("fp32"), COMPILED.format("fp32")} <= {row["worker"] for row in rows}
    assert " s left: news: ours: turn 1" in done.stderr


@needs_no_gpu
def test_without_a_gpu_nothing_is_measured_on_the_cpu_instead(tmp_path: Path) -> None:
    """It ends with 2 at the first step, and says why."""
    done = bench_gpu("--out", str(tmp_path))
    assert 2 == done.returncode, done.stderr
    assert ["machine"] == [row["step"] for row in read_rows(tmp_path)]
    assert "MISSED  machine: no_gpu" in done.stdout


def test_an_interpreter_that_lacks_packages_is_told_which(tmp_path: Path) -> None:
    """And how to bring them to a machine without a package index."""
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    bare.chmod(0o755)
    done = bench_gpu("--dry", python=str(bare))
    assert 1 == done.returncode
    assert "numpy, onnx, onnxruntime" in done.stderr
    assert "scripts/bench carry" in done.stderr


def test_a_step_that_fails_crashes_or_is_late_costs_only_itself(tmp_path: Path) -> None:
    """What it measured before is kept, the reason is written, and the next step runs."""
    steps = [
        Step("hangs", hangs, 1.0),
        Step("fails", fails, 60),
        Step("crashes", crashes, 60),
        Step("answers", answers, 60),
    ]
    run_steps(GpuBench(dry=True, out=tmp_path, scratch=tmp_path, began_s=time.monotonic()), steps, minutes=10)
    found = [{key: row[key] for key in row if key not in {"at_s", "dry", "ok"}} for row in read_rows(tmp_path)]
    assert [
        {"step": "hangs", "value": 1},
        {"step": "hangs", "late": "ended after 1 s"},
        {"step": "fails", "value": 2},
        {"step": "fails", "failed": "RuntimeError: no such kernel"},
        {"step": "crashes", "failed": "the process ended with SIGKILL"},
        {"step": "answers", "value": 3},
    ] == found


def test_the_rows_of_a_killed_run_make_tables(tmp_path: Path) -> None:
    """The last line may be torn."""
    (tmp_path / ROWS_FILE).write_bytes(b"\n".join(map(orjson.dumps, (PEAK, OURS))) + b'\n{"step": "stock", "leg')
    assert [PEAK, OURS] == read_rows(tmp_path)
    result = CliRunner().invoke(app_of("gpu"), ["--tables", "--out", str(tmp_path)])
    assert 0 == result.exit_code
    assert "60,000" in result.stdout


def test_what_is_compared_is_ours_and_the_sustained_peak() -> None:
    """A ratio above one means that ours is faster; of what has no row, no figure is invented."""
    even_rows = [row | {"case": "256 each"} for row in (OURS, THEIRS)]
    found = outcome([PEAK, OURS, THEIRS, *even_rows], QUESTIONS).tables[0]
    assert ["bert-base: packed-fp16", "60,000", NOT_RUN, "60,000", "30%"] in found.rows
    assert [f"bert-base: {STOCK}", "40,000 (1.50x)", NOT_RUN, "40,000 (1.50x)", "20%"] in found.rows
    assert not found.note
    [not_run] = outcome([], QUESTIONS).tables
    assert [*QUESTIONS.items()] == list(not_run.rows)


def test_operations_are_counted_as_the_products_that_there_are() -> None:
    """Two for each weight and token, and scores and values within the window: 161 GFLOP for XLM-R-large and 256 tokens."""
    assert SHAPES["xlm-r-large"].flops(np.array([256])) == pytest.approx(161.1e9, rel=2e-3)
    assert SHAPES["bert-base"].flops(np.array([256])) == pytest.approx(45.9e9, rel=2e-3)


Entry = tuple[int, bytes]
"""Architecture and code."""


def fat_binary(*entries: Entry) -> bytes:
    """As CUDA's linker writes it, with headers of 64 bytes and a gap behind it."""
    body = b"".join(
        struct.pack("<HHIQ", 2, 257, 64, len(code)) + bytes(12) + struct.pack("<I", architecture) + bytes(32) + code
        for architecture, code in entries
    )
    binary = struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body
    return binary + bytes(-len(binary) % 8 + 8)


def library(*binaries: bytes) -> bytearray:
    """An ELF library with one section of fat binaries and one of names."""
    content, names = b"".join(binaries), f"\0{SECTION}\0.shstrtab\0".encode()
    table = 64 + len(content) + len(names)
    header = b"\x7fELF\x02".ljust(0x28, b"\0") + struct.pack("<Q", table) + bytes(10) + struct.pack("<HHH", 64, 2, 1)
    sections = [(1, 64, len(content)), (1 + len(SECTION) + 1, 64 + len(content), len(names))]
    rows = b"".join(
        struct.pack("<IIQQQQ", name, 1, 0, 0, start, size).ljust(64, b"\0") for name, start, size in sections
    )
    return bytearray(header.ljust(64, b"\0") + content + names + rows)


KERNELS, OTHERS, LONE = b"A" * 40, b"B" * 24, b"C" * 16


def test_only_the_code_of_other_gpus_is_zeroed() -> None:
    """The library keeps its size, its headers and what every encoder needs."""
    made = library(
        fat_binary((80, OTHERS), (90, KERNELS)), fat_binary((90, LONE)), fat_binary((90, KERNELS), (75, OTHERS))
    )
    trimmed = bytearray(made)
    assert 2 * len(KERNELS) == trim(trimmed, 90, lone=False)
    assert len(made) == len(trimmed)
    assert made.replace(OTHERS, bytes(24)).replace(LONE, bytes(16)) == trimmed
    assert 2 * len(KERNELS) + len(LONE) == trim(bytearray(made), 90, lone=True)
    with pytest.raises(ValueError, match="no code for sm86"):
        trim(made, 86, lone=True)


def test_packages_are_those_of_the_locks_with_their_hashes() -> None:
    """Nothing comes without a checksum."""
    for name in (*LACKING, *FOR_PEERS):
        lines = locked(name).splitlines()
        assert lines[0].startswith(f"{name}==")
        assert all(line.strip().startswith("--hash=sha256:") for line in lines[1:])
        assert len(lines) > 1
    with pytest.raises(typer.BadParameter, match="is not in"):
        locked("pydanti")


def test_the_checkout_has_what_the_bench_reads_and_no_large_weights() -> None:
    """The models of the dry run, the articles and the scripts; 64 MiB hold it even before it is packed."""
    files = checkout_files()
    read = [MINILM / "model.safetensors", ARTICLES, SCRIPTS / "bench"]
    assert {path.relative_to(ROOT).as_posix() for path in read} <= {*files}
    assert [] == [name for name in files if name.endswith((".png", ".pyc"))]
    assert sum((ROOT / name).stat().st_size for name in files) < 64 * 2**20
