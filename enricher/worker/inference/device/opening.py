"""Opens sessions: ONNX Runtime's here, OpenVINO's in openvino_session.py. A silent fallback is refused."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, cast

import onnxruntime as ort

from enricher.errors import ModelError
from enricher.worker.inference.device import driver
from enricher.worker.inference.device.openvino_session import OpenVinoSession
from enricher.worker.inference.device.session import OPENVINO, PROVIDERS, SESSION_ERRORS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enricher.worker.inference.device.session import Runtime, Session

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
"""The optimizers of ONNX Runtime that our graphs are faster without on a GPU. This one makes a Gemm of a product and its
bias, which first copies the bias into every row; a separate addition makes a model 3 to 5 % faster on an H100."""
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
    `cpu_nodes`, for graphs of others, ONNX Runtime may run some nodes of a CUDA model on the CPU, and fuses what it likes.
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
