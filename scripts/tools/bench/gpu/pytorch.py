"""The legs on PyTorch, if it is installed: transformers' own model, eager or compiled, padded."""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

import numpy as np

from tools.bench.gpu.cases import padded_batches
from tools.bench.gpu.legs import Leg

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from enricher.records import Window

COMPILED_STEP_TOKENS = 64
"""Lengths are rounded up to it for the compiled model, which is compiled once per shape."""


def installed() -> bool:
    """Whether PyTorch is installed. It is not one of our dependencies."""
    return importlib.util.find_spec("torch") is not None


def torch_leg(folder: Path, precision: str, *, compiled: bool, dry: bool) -> Leg:
    """`precision` is fp16 or fp32. Labels and scores are computed on the device, and come back as two arrays."""
    torch: Any = importlib.import_module("torch")  # most machines have none
    from transformers import AutoModelForTokenClassification  # noqa: PLC0415  slow to import

    device = "cpu" if dry else "cuda"
    kind = {"fp16": torch.float16, "fp32": torch.float32}[precision]
    plain: Any = AutoModelForTokenClassification.from_pretrained(folder, dtype=kind).to(device).eval()
    model = torch.compile(plain, dynamic=True) if compiled else plain
    step = COMPILED_STEP_TOKENS if compiled else 1

    def feeds(windows: Sequence[Window]) -> dict[str, Any]:
        lengths = np.array([window.length_tokens for window in windows])
        longest = -(-int(lengths.max()) // step) * step
        mask = (np.arange(longest) < lengths[:, None]).astype(np.int64)
        ids = np.zeros(mask.shape, np.int64) + plain.config.pad_token_id
        for row, window in zip(ids, windows, strict=True):
            row[: window.length_tokens] = window.ids
        return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}

    def run(arrays: dict[str, Any]) -> Any:  # noqa: ANN401  torch's own
        with torch.inference_mode():
            logits = model(**{name: array.to(device) for name, array in arrays.items()}).logits.float()
            scores, labels = logits.softmax(-1).max(-1)
            return labels.cpu().numpy(), scores.cpu().numpy()

    name = f"PyTorch {precision}, {'compiled' if compiled else 'eager'}"
    return Leg(name, padded_batches, feeds, run, threads=False)
