"""The steps that measure speed: our variants, PyTorch and the stock optimizer on the same weights and windows."""

from __future__ import annotations

import contextlib
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tools.bench.gpu import pytorch
from tools.bench.gpu.cases import even, news
from tools.bench.gpu.checkpoints import SHAPES
from tools.bench.gpu.kernels import kernels_of
from tools.bench.gpu.legs import PACKED_FP16, PACKED_FP32, PADDED_FP32, our_leg, stock_leg
from tools.bench.gpu.timing import measure

if TYPE_CHECKING:
    from tools.bench.gpu.bench import Bench

LARGE, BASE = "xlm-r-large", "bert-base"
BATCH_TOKENS = (16384, 8192, 32768, 4096, 2048, 8448, 65536)
"""The most important first, and last what a small GPU has no memory for. 8,448 is a whole number of waves of the products of
XLM-R-large on 132 multiprocessors."""
RIVAL_BATCH_TOKENS = (8192, 32768)
FP32_WINDOWS, FP32_BATCH_TOKENS = 64, 8192
"""Ten times slower than float16, so few."""
TOP_KERNELS = 16
PROFILED_RUNS = 3


def weights(bench: Bench) -> None:
    """Random weights for the steps that measure speed, which take no values from a download; seconds on this CPU."""
    for shape in (LARGE, BASE):
        began_s = time.monotonic()
        bench.checkpoint(bench.shape(shape))
        bench.add(shape=bench.shape(shape), seconds=time.monotonic() - began_s)


def build(bench: Bench) -> None:
    """How long a worker's first start with a large model takes, and the memory: each graph is built once."""
    shape = bench.shape(LARGE)
    checkpoint = bench.checkpoint(shape)
    for variant in (PACKED_FP16, PADDED_FP32, PACKED_FP32):
        with contextlib.suppress(OSError):  # the peak counts from here; not every kernel can
            Path("/proc/self/clear_refs").write_text("5")
        began_s = time.monotonic()
        path = bench.graph(checkpoint, variant).onnx_path
        size = sum(each.stat().st_size for each in path.parent.iterdir())
        seconds = time.monotonic() - began_s
        bench.add(shape=shape, variant=variant.name, seconds=seconds, peak_gib=_peak_gib(), graph_gib=size / 2**30)


def large(bench: Bench) -> None:
    """XLM-R-large, packed fp16, by tokens of a batch and runs at once."""
    shape = bench.shape(LARGE)
    leg = our_leg(bench, bench.checkpoint(shape), PACKED_FP16)
    mixes = news(bench.count(2000))
    for batch_tokens in BATCH_TOKENS[:1] if bench.dry else BATCH_TOKENS:
        for threads in (2, 1, 3) if batch_tokens == BATCH_TOKENS[0] else (2, 1):
            measure(bench, leg, shape, even(bench.count(512)), batch_tokens, threads)
        for case in mixes if batch_tokens in BATCH_TOKENS[:3] else ():
            measure(bench, leg, shape, case, batch_tokens, 2)


def kernels(bench: Bench) -> None:
    """XLM-R-large, packed fp16: the kernels that take a run's time. PyTorch's profiler sees ONNX Runtime's too."""
    if bench.dry or not pytorch.installed():
        return bench.add(skipped="a CPU has no kernels" if bench.dry else pytorch.NOT_INSTALLED)
    leg = our_leg(bench, bench.checkpoint(LARGE), PACKED_FP16)
    feed = leg.feeds(even(BATCH_TOKENS[0] // 256).windows(SHAPES[LARGE].vocab_size))
    found = pytorch.kernel_times(leg.run, feed, PROFILED_RUNS)
    total_us = sum(map(sum, found.values()))
    if not found:
        return bench.add(skipped="the profiler saw no kernels")
    bench.add(kernel="all", ms_of_a_run=total_us / PROFILED_RUNS / 1e3)
    for name, times in sorted(found.items(), key=lambda each: -sum(each[1]))[:TOP_KERNELS]:
        calls = len(times) // PROFILED_RUNS
        bench.add(kernel=name[:90], share=sum(times) / total_us, calls=calls, us_each=statistics.median(times))
    return None


def fp32(bench: Bench) -> None:
    """XLM-R-large in fp32 without TF32: what serves until the gate has passed, packed and padded."""
    shape = bench.shape(LARGE)
    checkpoint = bench.checkpoint(shape)
    for variant in (PACKED_FP32, PADDED_FP32):
        leg = our_leg(bench, checkpoint, variant)
        for case in (even(bench.count(FP32_WINDOWS)), *news(bench.count(2 * FP32_WINDOWS))):
            measure(bench, leg, shape, case, FP32_BATCH_TOKENS, 2)


def eager(bench: Bench) -> None:
    """PyTorch as it comes, with transformers' model: fp16, and fp32 with few windows."""
    _pytorch(bench, [(LARGE, "fp16", 512), (LARGE, "fp32", FP32_WINDOWS), (BASE, "fp16", 1024)], compiled=False)


def compiled(bench: Bench) -> None:
    """PyTorch compiled, on BERT-base: compiling XLM-R-large takes minutes."""
    _pytorch(bench, [(BASE, "fp16", 1024)], compiled=True)


def stock(bench: Bench) -> None:
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
    assert leg.onnx_path is not None
    feed = leg.feeds(cases[0].windows(SHAPES[shape].vocab_size)[:16])
    bench.add(model=f"{shape}, {leg.name}", kernels=kernels_of(leg.onnx_path, feed, dry=bench.dry))


def _pytorch(bench: Bench, legs: list[tuple[str, str, int]], *, compiled: bool) -> None:
    """Shape, precision and number of windows of each leg."""
    if not pytorch.installed():
        return bench.add(skipped=pytorch.NOT_INSTALLED)
    for name, precision, windows in legs[: 1 if bench.dry else None]:
        shape = bench.shape(name)
        leg = pytorch.torch_leg(bench.checkpoint(shape).folder, precision, compiled=compiled, dry=bench.dry)
        for case in (even(bench.count(windows)), *news(bench.count(2 * windows))):
            for batch_tokens in RIVAL_BATCH_TOKENS[: 1 if bench.dry or precision == "fp32" else None]:
                measure(bench, leg, shape, case, batch_tokens, 1)
        del leg
        pytorch.empty_cache()
    return None


def _peak_gib() -> float | None:
    """The peak of this process, mapped pages of the checkpoint included; None where the system does not say."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 2**20 for line in lines if line.startswith("VmHWM:")), None)
