"""The device's limit: how fast ONNX Runtime multiplies large matrices on it."""

from __future__ import annotations

import statistics
import time

import numpy as np
import onnxruntime as ort
from onnx import helper, numpy_helper

PRODUCTS = 8
RUNS = 20


def matrix_peak_tflops(width: int, *, dry: bool) -> float:
    """TFLOP/s of chained `width x width` products, float16 on CUDA, float32 on the CPU in a dry run. Median of 20."""
    device, kind = ("cpu", np.float32) if dry else ("cuda", np.float16)
    provider = "CPUExecutionProvider" if dry else "CUDAExecutionProvider"
    session = ort.InferenceSession(_model(width, kind), providers=[provider])
    assert session.get_providers()[0] == provider, "fell back"
    start = np.random.default_rng(1).standard_normal((width, width), np.float32).astype(kind)
    binding = session.io_binding()
    binding.bind_ortvalue_input("x0", ort.OrtValue.ortvalue_from_numpy(start, device, 0))
    binding.bind_output(f"x{PRODUCTS}", device)
    seconds = []
    for _ in range(RUNS + 3):
        began_s = time.perf_counter()
        session.run_with_iobinding(binding)  # returns when the device is done
        seconds.append(time.perf_counter() - began_s)
    return PRODUCTS * 2 * width**3 / statistics.median(seconds[3:]) / 1e12


def _model(width: int, kind: type[np.floating]) -> bytes:
    """Products of entries near 1: with zeros or infinities a GPU runs faster than with real numbers."""
    weight = np.random.default_rng(0).standard_normal((width, width), np.float32) / np.sqrt(width)
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    nodes = [helper.make_node("MatMul", [f"x{index}", "w"], [f"x{index + 1}"]) for index in range(PRODUCTS)]
    ends = [helper.make_tensor_value_info(name, element, [width, width]) for name in ("x0", f"x{PRODUCTS}")]
    constants = [numpy_helper.from_array(weight.astype(kind), "w")]
    graph = helper.make_graph(nodes, "peak", ends[:1], ends[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    content: bytes = model.SerializeToString()
    return content
