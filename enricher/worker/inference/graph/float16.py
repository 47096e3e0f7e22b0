"""A model of any exporter -> the same graph in float16, by ONNX Runtime's own converter. Nothing is run here.

Weights, constants and values become float16; what is not a float (ids, masks, shapes) stays. The converter's list of
operators that stay in float32 applies. The sums of softmax and of layer norms are float32 in CUDA's kernels, also those
of norms in small operators, because ONNX Runtime fuses these when it opens the graph. Where something overflows all the
same, logits are NaN or labels change, and the quality gate refuses the graph: nothing else judges it.
"""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx.external_data_helper import load_external_data_for_model
from onnx.inliner import inline_local_functions

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.onnx_model import read_graph

LARGEST = 1e4
"""Larger constants are cut. Masks are such: exporters write float32's lowest number, and a score below float16's lowest is
infinite, so a row of nothing but hidden keys would be NaN. exp(-1e4) is zero in every precision."""


def in_float16(path: Path) -> onnx.ModelProto:
    """The model of an ONNX file in float32, with all of its weights in memory. Raises ModelError."""
    from onnxruntime.transformers.float16 import convert_float_to_float16  # noqa: PLC0415  only GPUs need it

    model = read_graph(path)
    try:
        if model.functions:  # the converter does not look into functions
            model = inline_local_functions(model)
        # Types are inferred before the weights are read: inference copies the model, which must then be below 2 GB.
        model = onnx.shape_inference.infer_shapes(model)
        load_external_data_for_model(model, str(path.parent))
        converted: onnx.ModelProto = convert_float_to_float16(model, max_finite_val=LARGEST, disable_shape_infer=True)
    except Exception as error:  # the converter raises whatever its code happens to raise
        raise ModelError(f"{path}: it cannot be converted to fp16: {error}. Choose precision fp32.") from error
    return converted
