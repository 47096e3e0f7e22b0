"""Sessions: open models that threads call, on ONNX Runtime or on OpenVINO. A silent fallback is refused.

OpenVINO is called through its own Python package. Intel's plugin provider for ONNX Runtime contains the same library, but
version 1.8.1 accepts Intel processors only, and AMD processors with AVX512-BF16 gain as well: twice ONNX Runtime's float32
rate on Zen 5. The library is loaded when it is first needed.

OpenVINO keeps what it compiles for each shape, in each stream: a quarter to a third of a megabyte, both for MiniLM and for
BERT-base. Lengths in multiples of 16 bound that: 172 shapes with windows of 128 tokens in batches of 1,024, which is 93 MiB
for two streams once all shapes have occurred.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Literal, Protocol, cast

import numpy as np
import numpy.typing as npt
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as ort_state

from enricher.errors import ModelError
from enricher.worker.inference.device import driver

Device = Literal["cpu", "cuda"]
Feeds = dict[str, "npt.NDArray[Any]"]
"""Arrays by input name."""
Runtime = Literal["cpu", "cuda", "openvino-int8", "openvino-bf16", "openvino-fp32"]
"""The runtime of a graph: one of ONNX Runtime's own providers, or OpenVINO in one of its precisions."""

OPENVINO = "OpenVINO"
"""OpenVINO's name in metrics and reports, where others have the name of their execution provider in ONNX Runtime."""
PROVIDERS: dict[Runtime, str] = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "openvino-int8": OPENVINO,
    "openvino-bf16": OPENVINO,
    "openvino-fp32": OPENVINO,
}

SESSION_ERRORS: tuple[type[Exception], ...] = (
    *(kind for kind in vars(ort_state).values() if isinstance(kind, type) and issubclass(kind, Exception)),
    RuntimeError,
    MemoryError,
)
"""The errors of a session. ONNX Runtime's own errors share no base class. A failed allocation may raise either of the
last two types; OpenVINO raises only these two."""


class Session(Protocol):
    """An open model; any number of threads may call it."""

    def run(self, outputs: Sequence[str], feeds: Feeds, /) -> list[npt.NDArray[Any]]:
        """The named outputs, in that order. Blocks while the model runs. Raises one of SESSION_ERRORS."""
        ...


_CUDA_ARITHMETIC = {
    # FlashAttention 1, CUTLASS 2, unfused 16 (AttentionBackend, attention_common.h): they sum in float32 on every GPU.
    # TensorRT's kernels, which ONNX Runtime prefers before Ampere, sum in float16. Packed attention also creates them
    # during the first run without a lock, so that two threads crash (packed_attention.cc), and their workspace has the
    # padded size.
    "sdpa_kernel": "19",
    # The other precisions are measured against fp32, so it must be fp32.
    "use_tf32": "0",
}
_CUDA_OPTIONS = {
    **_CUDA_ARITHMETIC,
    "arena_extend_strategy": "kSameAsRequested",
    "do_copy_in_default_stream": "1",
}
_GEMM_OPTIONS = "ORT_CUDA_GEMM_OPTIONS"
"""The environment variable that makes ONNX Runtime sum products of float16 in float16 (cuda_common.h)."""
_DISABLED = ("MatMulAddFusion",)
"""The optimizers of ONNX Runtime without which our graphs are faster on a GPU. MatMulAddFusion makes a Gemm of a product
and its bias, which first copies the bias into every row; a separate addition makes a model 3 to 5 % faster on an H100."""
_RESERVED_BYTES = 512 * 2**20
"""GPU memory that a session leaves: kernels and handles of cuBLAS and cuDNN are loaded late, outside the arena."""

_log = logging.getLogger(__name__)


def arithmetic_of(runtime: Runtime) -> str | None:
    """The options that change the results of sessions on a GPU, as text; None for other runtimes."""
    if runtime != "cuda":
        return None
    gemm = os.environ.get(_GEMM_OPTIONS) or "0"
    chosen = {**_CUDA_ARITHMETIC, _GEMM_OPTIONS: gemm, "disabled": ",".join(_DISABLED)}
    return " ".join(f"{name}={value}" for name, value in chosen.items())


def open_session(
    model: Path | bytes,
    runtime: Runtime,
    *,
    threads_per_run: int,
    concurrency: int = 1,
    device_id: int = 0,
    cpu_nodes: bool = False,
) -> Session:
    """Open a model. Raises ModelError if it does not open, or if another provider took a part of it.

    `concurrency` matters only to OpenVINO, whose runs share their threads. `device_id` is CUDA's number of the GPU. With
    `cpu_nodes`, for graphs of other exporters, ONNX Runtime may run some nodes of a CUDA model on the CPU, and fuses nodes
    freely.
    """
    try:
        if PROVIDERS[runtime] == OPENVINO:
            return OpenVinoSession(model, runtime, streams=concurrency, threads=concurrency * threads_per_run)
        options = _session_options(threads_per_run)
        if runtime != "cuda":
            return _onnx_session(model, runtime, options)
        if not cpu_nodes:
            options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        cuda_options = {**_CUDA_OPTIONS, "device_id": str(device_id), **_memory_limit(device_id)}
        return _onnx_session(model, runtime, options, cuda_options, () if cpu_nodes else _DISABLED)
    except SESSION_ERRORS as error:
        again = f" If {model.parent} is damaged, remove it: it is built again." if isinstance(model, Path) else ""
        raise ModelError(f"the model cannot be opened on {runtime}: {str(error).rstrip()}{again}") from error


def _memory_limit(device_id: int) -> dict[str, str]:
    """The option that bounds the arena by the memory that is free now, less a reserve; empty if that is unknown.

    Sessions and processes that share a GPU each leave the reserve when they open, and compete for memory afterwards.
    """
    free = driver.free_bytes(device_id)
    if not free:
        return {}
    limit = free - min(_RESERVED_BYTES, free // 8)
    _log.info("cuda:%d: the model may take %.1f GiB of GPU memory", device_id, limit / 2**30)
    return {"gpu_mem_limit": str(limit)}


def _onnx_session(
    model: Path | bytes,
    runtime: Runtime,
    options: ort.SessionOptions,
    provider_options: dict[str, str] | None = None,
    disabled: Sequence[str] = (),
) -> Session:
    source = model if isinstance(model, bytes) else str(model)
    # With the fallback, ONNX Runtime would print why a provider does not work and continue without it.
    session = ort.InferenceSession(
        source,
        options,
        providers=[(PROVIDERS[runtime], provider_options or {})],
        enable_fallback=False,
        disabled_optimizers=list(disabled),
    )
    if session.get_providers()[0] != PROVIDERS[runtime]:
        raise ModelError(f"ONNX Runtime fell back to {session.get_providers()[0]}.")
    return cast("Session", session)


def _session_options(threads_per_run: int) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads_per_run
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 4  # fatal: errors come back as exceptions, and we report each once
    # Batches differ in shape, and ONNX Runtime would keep a memory pattern for each shape it ever saw.
    options.enable_mem_pattern = False
    # Idle threads that spin take the cores from the tokenizer and from Kafka's client.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


PACKAGE = "openvino"


def openvino_problem(precision: str) -> str | None:
    """Why bf16 or fp32 cannot run here; None if it can."""
    if not is_installed():
        return f"OpenVINO is not installed here (`pip install {PACKAGE}`)"
    found = capabilities()
    if found is None:
        return "OpenVINO does not load here"
    if precision.upper() not in found:
        return f"the processor has no {precision} units" + (" (AMX or AVX512-BF16)" if precision == "bf16" else "")
    return None


def is_installed() -> bool:
    """True if the package is installed, whether or not it can use this processor."""
    return importlib.util.find_spec(PACKAGE) is not None


@functools.cache
def capabilities() -> Sequence[str] | None:
    """The precisions that OpenVINO reports for this processor, such as FP32 and BF16; None if it does not load."""
    try:
        return [str(each) for each in _core().get_property("CPU", "OPTIMIZATION_CAPABILITIES")]
    except Exception:  # noqa: BLE001  any error of a foreign library means that it does not load
        return None


def _precision_hint(runtime: Runtime) -> str:
    """OpenVINO's name for the precision of everything that the graph does not quantise."""
    if runtime == "openvino-fp32":
        return "f32"
    # int8 also runs on processors with VNNI and no bf16 (Cascade Lake, Ice Lake): all else is float32 there.
    return "bf16" if runtime == "openvino-bf16" or "BF16" in (capabilities() or ()) else "f32"


class OpenVinoSession:
    """A model on this processor, in the precision of `runtime`.

    Any number of threads may call `run`; `streams` of them run at once. Raises RuntimeError if OpenVINO cannot take the
    whole model, and if a run fails.
    """

    def __init__(self, model: Path | bytes, runtime: Runtime, *, streams: int, threads: int) -> None:
        self._compiled = _core().compile_model(
            _core().read_model(model),
            "CPU",
            {
                # Set explicitly: the default depends on the processor.
                "INFERENCE_PRECISION_HINT": _precision_hint(runtime),
                "NUM_STREAMS": streams,
                "INFERENCE_NUM_THREADS": threads,
                # Pinned streams fall to half their rate as soon as anything else runs on the machine.
                "ENABLE_CPU_PINNING": False,
            },
        )
        self._idle: SimpleQueue[Any] = SimpleQueue()
        for _ in range(streams):
            self._idle.put(self._compiled.create_infer_request())

    def run(self, outputs: Sequence[str], feeds: Feeds) -> list[npt.NDArray[Any]]:
        """The named outputs. Blocks, first until a stream is free, and releases the GIL while the model runs."""
        request = self._idle.get()
        try:
            # Not `infer`: when memory runs out, 2026.4.1 returns from it normally, with the outputs of an earlier run.
            request.start_async(feeds, share_inputs=True)
            request.wait()
            return [np.array(request.get_tensor(name).data) for name in outputs]
        except RuntimeError:
            # After running out of memory, smaller runs fail too unless the memory is released.
            self._compiled.release_memory()
            raise
        finally:
            self._idle.put(request)


@functools.cache
def _core() -> Any:  # noqa: ANN401  its types are known only where it is installed
    # On import OpenVINO reports usage to its makers, and stores an identifier of the machine in HOME. Without its telemetry
    # package it does neither; everything else works.
    sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]
    from openvino import Core, Tensor, Type  # noqa: PLC0415  a fifth of a second, only where OpenVINO runs the model

    # OpenVINO builds its tables of NumPy's types at first use, in a thread that releases the GIL meanwhile. A second thread
    # then waits for the tables while it holds the GIL, and both hang for ever (2026.4.1). So one thread builds them here.
    Type.i32.to_dtype()
    np.array(Tensor(np.zeros(1, np.int32)).data)
    return Core()
