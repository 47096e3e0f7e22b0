"""The device's limit: how fast ONNX Runtime multiplies matrices on it for seconds, not in a burst before it gets hot."""

from __future__ import annotations

import statistics
import time
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime as ort
from onnx import helper, numpy_helper

from enricher.worker.inference.device.session import PROVIDERS

if TYPE_CHECKING:
    from tools.bench.gpu.bench import Bench

PRODUCTS = 8
WIDTH = 8192
SUSTAINED_S, SHORT_S = 4.0, 0.3
OURS = ((1024, 1024), (1024, 4096), (4096, 1024), (384, 384), (384, 1536), (1536, 384))
"""Inner and outer width of the products of XLM-R-large and of the built-in model."""


def peak(bench: Bench) -> None:
    """What the GPU sustains in float16 and float32 at its power limit, and what it reaches in products of our shapes."""
    wide = 128 if bench.dry else WIDTH
    for precision in ("fp16", "fp32"):
        tflops = _tflops(bench, precision, (wide, wide, wide), SUSTAINED_S)
        bench.add(precision=precision, rows=wide, inner=wide, outer=wide, tflops=tflops, sustained=True)
    for rows in (64,) if bench.dry else (8192, 16384):
        for inner, outer in OURS[-1:] if bench.dry else OURS:
            tflops = _tflops(bench, "fp16", (rows, inner, outer), SHORT_S)
            bench.add(precision="fp16", rows=rows, inner=inner, outer=outer, tflops=tflops)


def _tflops(bench: Bench, precision: str, size: tuple[int, int, int], seconds: float) -> float:
    """The median of the second half of the runs; `size` is rows, inner, outer. A dry run computes float32 on the CPU."""
    rows, inner, outer = size
    kind = np.float16 if precision == "fp16" and not bench.dry else np.float32
    device = "cpu" if bench.dry else "cuda"
    options = ort.SessionOptions()
    # Otherwise equal products become one.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    provider = ("CPUExecutionProvider", {}) if bench.dry else (PROVIDERS["cuda"], {"use_tf32": "0"})
    session = ort.InferenceSession(_model(size, kind), options, providers=[provider])
    assert session.get_providers()[0] == provider[0], "fell back"
    binding = session.io_binding()
    start = np.random.default_rng(1).standard_normal((rows, inner), np.float32).astype(kind)
    binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(start, device, 0))
    for index in range(PRODUCTS):
        binding.bind_output(f"y{index}", device)
    took: list[float] = []
    began_s = time.perf_counter()
    while len(took) < 4 or time.perf_counter() - began_s < bench.seconds(seconds):
        run_s = time.perf_counter()
        session.run_with_iobinding(binding)  # returns when the device is done
        took.append(time.perf_counter() - run_s)
    return PRODUCTS * 2 * rows * inner * outer / statistics.median(took[len(took) // 2 :]) / 1e12


def _model(size: tuple[int, int, int], kind: type[np.floating]) -> bytes:
    """Products of entries near 1: with zeros or infinities a GPU runs faster than with real numbers."""
    rows, inner, outer = size
    weight = np.random.default_rng(0).standard_normal((inner, outer), np.float32) / np.sqrt(inner)
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    results = [f"y{index}" for index in range(PRODUCTS)]
    nodes = [helper.make_node("MatMul", ["x", "w"], [result]) for result in results]
    inputs = [helper.make_tensor_value_info("x", element, [rows, inner])]
    outputs = [helper.make_tensor_value_info(result, element, [rows, outer]) for result in results]
    graph = helper.make_graph(nodes, "peak", inputs, outputs, [numpy_helper.from_array(weight.astype(kind), "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    content: bytes = model.SerializeToString()
    return content
