"""The legs on ONNX Runtime: our packed variant, and the stock optimizer's padded float16 graph of the same weights."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from enricher.inference.checkpoint.folder import Checkpoint
from enricher.inference.device.opening import open_session
from enricher.inference.graph.packed_cuda import PackedFloat16
from enricher.inference.graph.padded import PaddedFloat32
from enricher.inference.run.model import prepare_variant
from enricher.records import Window
from tools.bench.gpu.cases import packed_batches, padded_batches
from tools.bench.model.plain import export

if TYPE_CHECKING:
    from enricher.inference.device.session import Feeds
    from enricher.inference.graph.variants import Variant

Batches = list[list[Window]]


@dataclass(frozen=True, slots=True)
class Leg:
    """One way to run batches; several threads may call `run` at once if `threads` is true."""

    name: str
    batching: Callable[[Sequence[Window], int], Batches]
    feeds: Callable[[Sequence[Window]], Any]
    run: Callable[[Any], Any]
    onnx_path: Path | None = None
    threads: bool = True


def packed_leg(checkpoint: Checkpoint, scratch: Path, *, dry: bool) -> Leg:
    """Ours. In a dry run its graph and arrays are made, and the padded float32 variant runs instead."""
    variant = PackedFloat16()
    path = prepare_variant(checkpoint, variant, "cuda", cache_dir=scratch / "cache").onnx_path
    if not dry:
        return _variant_leg("packed fp16", variant, path)
    stand_in = prepare_variant(checkpoint, PaddedFloat32(), "cpu", cache_dir=scratch / "cache")
    leg = _variant_leg("packed fp16 (stand-in)", stand_in.variant, stand_in.onnx_path)

    def both(windows: Sequence[Window]) -> Feeds:
        variant.feeds(windows, pad_id=0)
        return stand_in.variant.feeds(windows, pad_id=0)

    return Leg(leg.name, packed_batches, both, leg.run, path)


def stock_leg(checkpoint: Checkpoint, scratch: Path, *, dry: bool) -> Leg:
    """A plain export, fused and turned into float16 by ONNX Runtime's transformer optimizer. float32 in a dry run."""
    path = stock_graph(checkpoint, scratch, half=not dry)
    session = open_session(path, "cpu" if dry else "cuda", threads_per_run=1, cpu_nodes=True)
    known = {each.name for each in onnx.load(path, load_external_data=False).graph.input}

    def feeds(windows: Sequence[Window]) -> Feeds:
        lengths = np.array([window.length_tokens for window in windows])
        mask = (np.arange(lengths.max()) < lengths[:, None]).astype(np.int64)
        ids = np.full(mask.shape, checkpoint.first_position - 1 if checkpoint.first_position else 0, np.int64)
        for row, window in zip(ids, windows, strict=True):
            row[: window.length_tokens] = window.ids
        arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        return {name: array for name, array in arrays.items() if name in known}

    name = f"padded {'fp32' if dry else 'fp16'}, stock optimizer"
    return Leg(name, padded_batches, feeds, lambda arrays: session.run(["logits"], arrays), path)


def stock_graph(checkpoint: Checkpoint, scratch: Path, *, half: bool) -> Path:
    """The path of the stock optimizer's graph. Takes 14 GiB of memory for XLM-R-large (measured)."""
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


def _variant_leg(name: str, variant: Variant, path: Path) -> Leg:
    session = open_session(path, variant.runtime, threads_per_run=1)
    return Leg(
        name,
        packed_batches,
        lambda windows: variant.feeds(windows, 0),
        lambda feeds: session.run(["labels", "scores"], feeds),
        path,
    )
