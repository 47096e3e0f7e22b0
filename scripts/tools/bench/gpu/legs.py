"""The legs on ONNX Runtime: our variants, and the stock optimizer's padded float16 graph of the same weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import onnx

from enricher.worker.inference.device.opening import open_session
from enricher.worker.inference.graph.packed_cpu import PackedFloat32
from enricher.worker.inference.graph.packed_cuda import PackedCudaFloat32, PackedFloat16
from enricher.worker.inference.graph.padded import PaddedFloat32
from tools.bench.model.legs import Leg, stock_feeds
from tools.bench.model.plain import write_fused

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enricher.worker.inference.checkpoint.folder import Checkpoint
    from enricher.worker.inference.device.session import Feeds
    from enricher.worker.inference.graph.variants import Variant
    from enricher.worker.records import Window
    from tools.bench.gpu.bench import Bench


STOCK = "stock optimizer fp16, padded"
PACKED_FP16, PACKED_FP32, PADDED_FP32 = PackedFloat16(), PackedCudaFloat32(), PaddedFloat32(runtime="cuda")


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
        variant.name,
        feeds,
        lambda arrays: session.run(list(outputs), arrays),
        pads=not variant.packs,
        onnx_path=built.onnx_path,
    )


def stock_leg(bench: Bench, shape: str) -> Leg:
    """A plain export, fused and turned into float16 by ONNX Runtime's transformer optimizer. float32 in a dry run."""
    checkpoint = bench.checkpoint(shape)
    path = write_fused(checkpoint, bench.scratch / "stock.onnx", half=not bench.dry)
    session = open_session(path, "cpu" if bench.dry else "cuda", threads_per_run=1, cpu_nodes=True)
    known = {each.name for each in onnx.load(path, load_external_data=False).graph.input}
    feeds = stock_feeds(known, checkpoint.first_position - 1 if checkpoint.first_position else 0)
    return Leg(STOCK, feeds, lambda arrays: session.run(["logits"], arrays), onnx_path=path)
