"""The steps that compare with PyTorch's logits and labels, and that name the attention kernels.

ONNX Runtime prints the kernels past Python's streams, so a child process runs the graph: as a module this file opens it and
runs one batch, `python -m tools.bench.gpu.correctness GRAPH FEEDS.npz RUNTIME`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx

from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.hardware import cuda_problem
from enricher.worker.inference.device.sessions import Feeds, Runtime, open_session
from enricher.worker.inference.run.model import open_model
from enricher.worker.records import Window
from tools import MINILM, ROOT
from tools.bench.gpu.bench import Bench, model_source
from tools.bench.gpu.legs import PACKED_FP16, PACKED_FP32, PADDED_FP32, our_leg, window_of

REFERENCE = ROOT / "tests" / "data" / "reference"
VARIANTS = (PACKED_FP16, PACKED_FP32, PADDED_FP32)
LIMITS = {"fp16": 2e-2, "fp32": 1e-3}
"""Largest difference of a logit allowed, relative to the largest, as in tests/inference/test_packed_gpu.py."""
LEAST_EQUAL = 0.999
"""Labels of the gold sentences that must be PyTorch's."""
BATCH_WINDOWS = 64


def correct(bench: Bench) -> None:
    """Six families of tiny checkpoints against PyTorch's logits, in one batch of windows of 1 to 130 tokens."""
    for path in sorted(REFERENCE.glob("*/reference.npz")):
        reference = np.load(path)
        windows = [
            window_of(row[:length]) for row, length in zip(reference["input_ids"], reference["lengths"], strict=True)
        ]
        expected = reference["logits"][reference["attention_mask"].astype(bool)]
        for variant in VARIANTS:
            leg = our_leg(bench, Checkpoint.open(path.parent), variant, ["logits"])
            (logits,) = leg.run(leg.feeds(windows))
            logits = _real(logits, windows) if leg.pads else logits
            worst = float(np.abs(expected - logits).max() / np.abs(expected).max())
            # NaN is not below a limit.
            bench.add(family=path.parent.name, variant=variant.name, worst=worst, ok=worst < LIMITS[variant.precision])


def labels(bench: Bench) -> None:
    """The labels of newswire-minilm for the gold sentences against PyTorch's."""
    windows, expected = _gold(bench)
    for variant in VARIANTS[:1] if bench.dry else VARIANTS:
        leg = our_leg(bench, open_model(MINILM), variant, ["labels"])
        found = []
        for first in range(0, len(windows), BATCH_WINDOWS):
            batch = windows[first : first + BATCH_WINDOWS]
            (answers,) = leg.run(leg.feeds(batch))
            found.append(_real(answers, batch) if leg.pads else answers)
        equal = np.concatenate(found) == expected
        bench.add(variant=variant.name, labels=len(equal), changed=int((~equal).sum()), ok=equal.mean() >= LEAST_EQUAL)


def attention(bench: Bench) -> None:
    """The attention kernels that run in the worker's model. MATH is the unfused one."""
    windows, _ = _gold(bench)
    for variant in VARIANTS[:1] if bench.dry else VARIANTS:
        leg = our_leg(bench, open_model(model_source()), variant)
        assert leg.onnx_path is not None
        found = kernels_of(leg.onnx_path, leg.feeds(windows[:BATCH_WINDOWS]), dry=bench.dry)
        # Silence is no proof. Padded fp32 is unfused at every length.
        fused = bool(found) and UNFUSED not in found
        bench.add(model=model_source(), variant=variant.name, kernels=found, ok=bench.dry or leg.pads or fused)


def _real(padded: np.ndarray, windows: list[Window]) -> np.ndarray:
    """The rows of real tokens."""
    return np.concatenate([row[: window.length_tokens] for row, window in zip(padded, windows, strict=True)])


def _gold(bench: Bench) -> tuple[list[Window], np.ndarray]:
    """The gold sentences as windows, and PyTorch's label of each token. A dry run has four."""
    reference = np.load(REFERENCE / "pud_logits.npz")
    count = 4 if bench.dry else len(reference["lengths"])
    ends = np.cumsum(reference["lengths"])[:count]
    windows = [window_of(ids) for ids in np.split(reference["input_ids"][: ends[-1]], ends[:-1])]
    return windows, reference["logits"][: ends[-1]].argmax(-1)


SWITCH = "ORT_ENABLE_ATTENTION_KERNEL_DEBUG_INFO"
UNFUSED = "MATH"
_NAMED = re.compile(r"SdpaKernel=(\w+)")


def kernels_of(path: Path, feeds: Feeds, *, dry: bool) -> dict[str, int]:
    """How often each attention kernel ran in one run, by ONNX Runtime's name. On a CPU none is named."""
    with tempfile.TemporaryDirectory() as scratch:
        arrays = Path(scratch) / "feeds.npz"
        savez: Any = np.savez  # its type hint allows one option only
        savez(arrays, **feeds)
        command = [
            sys.executable,
            "-m",
            "tools.bench.gpu.correctness",
            str(path),
            str(arrays),
            "cpu" if dry else "cuda",
        ]
        done = subprocess.run(command, env=os.environ | {SWITCH: "1"}, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the run that names attention kernels failed: {done.stderr[-2000:]}")
    return kernels_in(done.stdout + done.stderr)


def kernels_in(printed: str) -> dict[str, int]:
    """Kernel names in what ONNX Runtime prints, such as `SdpaKernel=FLASH_ATTENTION`, and how often each occurs."""
    return dict(Counter(_NAMED.findall(printed)))


def _run_once(path: str, arrays: str, runtime: str) -> None:
    """Run it with the options of a worker, some of which choose kernels."""
    if runtime == "cuda" and (problem := cuda_problem()):
        sys.exit(problem)
    outputs = [each.name for each in onnx.load(path, load_external_data=False).graph.output]
    session = open_session(Path(path), cast("Runtime", runtime), threads_per_run=1, cpu_nodes=True)
    session.run(outputs, dict(np.load(arrays)))


if __name__ == "__main__":
    _run_once(*sys.argv[1:])
