"""The steps that measure speed: our variants, PyTorch and the stock optimizer on the same weights and windows.

And the limit: how fast ONNX Runtime multiplies matrices here for seconds, not in a burst before the device gets hot.
"""

from __future__ import annotations

import statistics
import time

import numpy as np
import onnxruntime as ort
from onnx import helper, numpy_helper

from enricher.worker.inference.device.sessions import PROVIDERS
from tools.bench.gpu.legs import (
    NOT_INSTALLED,
    PACKED_FP16,
    PACKED_FP32,
    empty_cache,
    even,
    has_torch,
    measure,
    news,
    our_leg,
    stock_leg,
    torch_leg,
)
from tools.bench.gpu.rows import GpuBench

LARGE, BASE = "xlm-r-large", "bert-base"
BATCH_TOKENS = (16384, 8192, 32768, 4096, 2048, 8448, 65536)
"""The most important first, and last what a small GPU has no memory for. 8,448 is a whole number of waves of the products of
XLM-R-large on 132 multiprocessors."""
RIVAL_BATCH_TOKENS = (8192, 32768)
FP32_WINDOWS, FP32_BATCH_TOKENS = 64, 8192
"""Ten times slower than float16, so few."""


def large(bench: GpuBench) -> None:
    """XLM-R-large, packed fp16, by tokens of a batch and runs at once."""
    shape = bench.shape(LARGE)
    leg = our_leg(bench, bench.checkpoint(shape), PACKED_FP16)
    mixes = news(bench.count(2000))
    for batch_tokens in BATCH_TOKENS[:1] if bench.dry else BATCH_TOKENS:
        for threads in (2, 1, 3) if batch_tokens == BATCH_TOKENS[0] else (2, 1):
            measure(bench, leg, shape, even(bench.count(512)), batch_tokens, threads)
        for case in mixes if batch_tokens in BATCH_TOKENS[:3] else ():
            measure(bench, leg, shape, case, batch_tokens, 2)


def fp32(bench: GpuBench) -> None:
    """XLM-R-large in fp32 without TF32: what serves until the gate has passed."""
    shape = bench.shape(LARGE)
    leg = our_leg(bench, bench.checkpoint(shape), PACKED_FP32)
    for case in (even(bench.count(FP32_WINDOWS)), *news(bench.count(2 * FP32_WINDOWS))):
        measure(bench, leg, shape, case, FP32_BATCH_TOKENS, 2)


def eager(bench: GpuBench) -> None:
    """PyTorch as it comes, with transformers' model: fp16, and fp32 with few windows."""
    _pytorch(bench, [(LARGE, "fp16", 512), (LARGE, "fp32", FP32_WINDOWS), (BASE, "fp16", 1024)], compiled=False)


def compiled(bench: GpuBench) -> None:
    """PyTorch compiled, on BERT-base: compiling XLM-R-large takes minutes."""
    _pytorch(bench, [(BASE, "fp16", 1024)], compiled=True)


def stock(bench: GpuBench) -> None:
    """BERT-base by ONNX Runtime's own optimizer, padded fp16, beside ours. XLM-R-large would take minutes of CPU."""
    shape = bench.shape(BASE)
    cases = [even(bench.count(1024)), *news(bench.count(2000))]
    ours = our_leg(bench, bench.checkpoint(shape), PACKED_FP16)
    for case in cases:
        for batch_tokens in RIVAL_BATCH_TOKENS[: 1 if bench.dry else None]:
            measure(bench, ours, shape, case, batch_tokens, 2)
    leg = stock_leg(bench, shape)
    for case in cases:
        for batch_tokens in RIVAL_BATCH_TOKENS[: 1 if bench.dry else None]:
            for threads in (2,) if bench.dry else (2, 1):
                measure(bench, leg, shape, case, batch_tokens, threads)


def _pytorch(bench: GpuBench, legs: list[tuple[str, str, int]], *, compiled: bool) -> None:
    """Shape, precision and number of windows of each leg."""
    if not has_torch():
        return bench.add(skipped=NOT_INSTALLED)
    for name, precision, windows in legs[: 1 if bench.dry else None]:
        shape = bench.shape(name)
        leg = torch_leg(bench.checkpoint(shape).folder, precision, compiled=compiled, dry=bench.dry)
        for case in (even(bench.count(windows)), *news(bench.count(2 * windows))):
            for batch_tokens in RIVAL_BATCH_TOKENS[: 1 if bench.dry or precision == "fp32" else None]:
                measure(bench, leg, shape, case, batch_tokens, 1)
        del leg
        empty_cache()
    return None


# ---- the device's limit


PRODUCTS = 8
WIDTH = 8192
SUSTAINED_S = 4.0


def peak(bench: GpuBench) -> None:
    """Measures the GPU: its rate in float16 and float32 at its power limit."""
    width = 128 if bench.dry else WIDTH
    for precision in ("fp16", "fp32"):
        bench.add(precision=precision, width=width, tflops=_tflops(bench, precision, width), sustained=True)


def _tflops(bench: GpuBench, precision: str, width: int) -> float:
    """The median of the second half of the runs of square products. A dry run computes float32 on the CPU."""
    kind = np.float16 if precision == "fp16" and not bench.dry else np.float32
    device = "cpu" if bench.dry else "cuda"
    options = ort.SessionOptions()
    # Otherwise equal products become one.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    provider = ("CPUExecutionProvider", {}) if bench.dry else (PROVIDERS["cuda"], {"use_tf32": "0"})
    session = ort.InferenceSession(_model(width, kind), options, providers=[provider])
    assert session.get_providers()[0] == provider[0], "fell back"
    binding = session.io_binding()
    start = np.random.default_rng(1).standard_normal((width, width), np.float32).astype(kind)
    binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(start, device, 0))
    for index in range(PRODUCTS):
        binding.bind_output(f"y{index}", device)
    took: list[float] = []
    began_s = time.perf_counter()
    while len(took) < 4 or time.perf_counter() - began_s < bench.seconds(SUSTAINED_S):
        run_s = time.perf_counter()
        session.run_with_iobinding(binding)  # returns when the device is done
        took.append(time.perf_counter() - run_s)
    return PRODUCTS * 2 * width**3 / statistics.median(took[len(took) // 2 :]) / 1e12


def _model(width: int, kind: type[np.floating]) -> bytes:
    """Products of entries near 1: with zeros or infinities a GPU runs faster than with real numbers."""
    weight = np.random.default_rng(0).standard_normal((width, width), np.float32) / np.sqrt(width)
    element = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    results = [f"y{index}" for index in range(PRODUCTS)]
    nodes = [helper.make_node("MatMul", ["x", "w"], [result]) for result in results]
    inputs = [helper.make_tensor_value_info("x", element, [width, width])]
    outputs = [helper.make_tensor_value_info(result, element, [width, width]) for result in results]
    graph = helper.make_graph(nodes, "peak", inputs, outputs, [numpy_helper.from_array(weight.astype(kind), "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    content: bytes = model.SerializeToString()
    return content
