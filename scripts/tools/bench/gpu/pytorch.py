"""The legs on PyTorch, if it is installed: transformers' own model, eager or compiled, padded."""

from __future__ import annotations

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

from tools.bench.model.legs import Leg, pad

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from enricher.worker.records import Window

COMPILED_STEP_TOKENS = 64
"""Lengths are rounded up to it for the compiled model, which is compiled once per shape."""
NOT_INSTALLED = "PyTorch is not installed"


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
        ids, mask = pad(windows, plain.config.pad_token_id, step_tokens=step)
        return {"input_ids": torch.from_numpy(ids), "attention_mask": torch.from_numpy(mask)}

    def run(arrays: dict[str, Any]) -> Any:  # noqa: ANN401  torch's own
        with torch.inference_mode():
            logits = model(**{name: array.to(device) for name, array in arrays.items()}).logits.float()
            scores, labels = logits.softmax(-1).max(-1)
            return labels.cpu().numpy(), scores.cpu().numpy()

    return Leg(f"PyTorch {precision}, {'compiled' if compiled else 'eager'}", feeds, run)


def kernel_times(run: Any, feed: Any, runs: int) -> dict[str, list[float]]:  # noqa: ANN401  any leg's
    """Microseconds of each call of every kernel of this process: CUPTI sees those of ONNX Runtime too."""
    profiler: Any = importlib.import_module("torch.profiler")
    run(feed)
    with profiler.profile(activities=[profiler.ProfilerActivity.CUDA, profiler.ProfilerActivity.CPU]) as found:
        for _ in range(runs):
            run(feed)
        importlib.import_module("torch").cuda.synchronize()
    kernels: dict[str, list[float]] = {}
    for event in found.events():
        if str(event.device_type).endswith("CUDA"):
            kernels.setdefault(event.name, []).append(event.time_range.elapsed_us())
    return kernels


def empty_cache() -> None:
    """Give PyTorch's memory back to the GPU, for the next leg."""
    importlib.import_module("gc").collect()
    importlib.import_module("torch").cuda.empty_cache()
