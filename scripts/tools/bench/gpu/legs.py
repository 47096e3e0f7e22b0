"""The legs on ONNX Runtime: our variants, and the stock optimizer's padded float16 graph of the same weights."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from enricher.worker.inference.device.opening import open_session
from enricher.worker.inference.graph.packed_cpu import PackedFloat32
from enricher.worker.inference.graph.packed_cuda import PackedCudaFloat32, PackedFloat16
from enricher.worker.inference.graph.padded import PaddedFloat32
from tools.bench.gpu.cases import packed_batches
from tools.bench.model.cases import in_order_of_arrival
from tools.bench.model.plain import export

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from enricher.worker.inference.checkpoint.folder import Checkpoint
    from enricher.worker.inference.device.session import Feeds
    from enricher.worker.inference.graph.variants import Variant
    from enricher.worker.records import Window
    from tools.bench.gpu.bench import Bench


STOCK = "stock optimizer fp16, padded"
PACKED_FP16, PACKED_FP32, PADDED_FP32 = PackedFloat16(), PackedCudaFloat32(), PaddedFloat32(runtime="cuda")


@dataclass(frozen=True, slots=True)
class Leg:
    """One way to run batches. Several threads may call `run` at once, but for PyTorch's legs."""

    name: str
    feeds: Callable[[Sequence[Window]], Any]
    run: Callable[[Any], Any]
    pads: bool = True
    onnx_path: Path | None = None

    def batching(self, windows: Sequence[Window], max_tokens: int) -> list[list[Window]]:
        """In order, as many as fit: padded if the leg pads."""
        return (in_order_of_arrival if self.pads else packed_batches)(windows, max_tokens)


def our_leg(
    bench: Bench, checkpoint: Checkpoint, variant: Variant, outputs: Sequence[str] = ("labels", "scores")
) -> Leg:
    """A variant of ours. In a dry run its graph and arrays are made, and a variant for the CPU runs instead."""
    built, runs = bench.graph(checkpoint, variant), variant
    if bench.dry:
        runs = PackedFloat32() if variant.packs else PaddedFloat32()
        built = bench.graph(checkpoint, runs)
    session = open_session(built.onnx_path, runs.runtime, threads_per_run=1)

    def feeds(windows: Sequence[Window]) -> Feeds:
        arrays = variant.feeds(windows, 0)
        return runs.feeds(windows, 0) if bench.dry else arrays

    return Leg(
        variant.name, feeds, lambda arrays: session.run(list(outputs), arrays), not variant.packs, built.onnx_path
    )


def stock_leg(bench: Bench, shape: str) -> Leg:
    """A plain export, fused and turned into float16 by ONNX Runtime's transformer optimizer. float32 in a dry run."""
    checkpoint = bench.checkpoint(shape)
    path = _stock_graph(checkpoint, bench.scratch, half=not bench.dry)
    session = open_session(path, "cpu" if bench.dry else "cuda", threads_per_run=1, cpu_nodes=True)
    known = {each.name for each in onnx.load(path, load_external_data=False).graph.input}

    def feeds(windows: Sequence[Window]) -> Feeds:
        lengths = np.array([window.length_tokens for window in windows])
        mask = (np.arange(lengths.max()) < lengths[:, None]).astype(np.int64)
        ids = np.full(mask.shape, checkpoint.first_position - 1 if checkpoint.first_position else 0, np.int64)
        for row, window in zip(ids, windows, strict=True):
            row[: window.length_tokens] = window.ids
        arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        return {name: array for name, array in arrays.items() if name in known}

    return Leg(STOCK, feeds, lambda arrays: session.run(["logits"], arrays), onnx_path=path)


def _stock_graph(checkpoint: Checkpoint, scratch: Path, *, half: bool) -> Path:
    """The path of the stock optimizer's graph. Took 14 GiB of memory for XLM-R-large."""
    from onnxruntime.transformers import float16, optimizer  # noqa: PLC0415  it configures logging

    source, target = scratch / "plain", scratch / "stock"
    for folder in (source, target):
        folder.mkdir(parents=True, exist_ok=True)
    logging.disable(logging.WARNING)
    model = optimizer.optimize_model(
        str(export(checkpoint, source)),
        model_type="bert",
        num_heads=checkpoint.config.heads,
        hidden_size=checkpoint.config.hidden_size,
        opt_level=0,  # the session applies ONNX Runtime's own passes
    )
    fused = model.get_fused_operator_statistics()
    assert checkpoint.config.layers == fused["Attention"], f"the optimizer missed attention: {fused}"
    if half:
        # The optimizer's own method infers shapes first, which fails above 2 GB and is not needed here.
        model.model = float16.convert_float_to_float16(model.model, keep_io_types=False, disable_shape_infer=True)
    model.save_model_to_file(str(target / "model.onnx"), use_external_data_format=True)
    logging.disable(logging.NOTSET)
    return target / "model.onnx"
