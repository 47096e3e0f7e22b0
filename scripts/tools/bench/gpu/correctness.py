"""The steps that compare with PyTorch's logits and labels. tests/inference/test_packed_gpu.py also names the kernels."""

from __future__ import annotations

import numpy as np

from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.run.model import open_model
from enricher.worker.records import Window
from tools import MINILM, ROOT
from tools.bench.gpu.legs import PACKED_FP16, PACKED_FP32, PADDED_FP32, our_leg, window_of
from tools.bench.gpu.rows import GpuBench

REFERENCE = ROOT / "tests" / "data" / "reference"
VARIANTS = (PACKED_FP16, PACKED_FP32, PADDED_FP32)
LIMITS = {"fp16": 2e-2, "fp32": 1e-3}
"""Largest difference of a logit allowed, relative to the largest, as in tests/inference/test_packed_gpu.py."""
LEAST_EQUAL = 0.999
"""Labels of the gold sentences that must be PyTorch's."""
BATCH_WINDOWS = 64


def correct(bench: GpuBench) -> None:
    """A tiny checkpoint of each family against PyTorch's logits, in one batch of windows of 1 to 130 tokens."""
    for path in sorted(REFERENCE.glob("*/reference.npz")):
        reference = np.load(path)
        windows = [
            window_of(row[:length]) for row, length in zip(reference["input_ids"], reference["lengths"], strict=True)
        ]
        expected = reference["logits"][reference["attention_mask"].astype(bool)]
        checkpoint = Checkpoint.open(path.parent)
        for variant in VARIANTS:
            if variant.why_unsuited(checkpoint.config):
                continue
            leg = our_leg(bench, checkpoint, variant, ["logits"])
            (logits,) = leg.run(leg.feeds(windows))
            logits = _real(logits, windows) if leg.pads else logits
            worst = float(np.abs(expected - logits).max() / np.abs(expected).max())
            # NaN is not below a limit.
            bench.add(family=path.parent.name, variant=variant.name, worst=worst, ok=worst < LIMITS[variant.precision])


def labels(bench: GpuBench) -> None:
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


def _real(padded: np.ndarray, windows: list[Window]) -> np.ndarray:
    """The rows of real tokens."""
    return np.concatenate([row[: window.length_tokens] for row, window in zip(padded, windows, strict=True)])


def _gold(bench: GpuBench) -> tuple[list[Window], np.ndarray]:
    """The gold sentences as windows, and PyTorch's label of each token. A dry run has four."""
    reference = np.load(REFERENCE / "pud_logits.npz")
    count = 4 if bench.dry else len(reference["lengths"])
    ends = np.cumsum(reference["lengths"])[:count]
    windows = [window_of(ids) for ids in np.split(reference["input_ids"][: ends[-1]], ends[:-1])]
    return windows, reference["logits"][: ends[-1]].argmax(-1)
