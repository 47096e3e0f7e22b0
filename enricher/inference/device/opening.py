"""Opens sessions: ONNX Runtime's here, OpenVINO's in openvino_session.py. A silent fallback is refused."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

import onnxruntime as ort

from enricher.errors import ModelError
from enricher.inference.device.first_run import FirstRunAlone
from enricher.inference.device.openvino_session import OpenVinoSession
from enricher.inference.device.session import OPENVINO, PROVIDERS, SESSION_ERRORS

if TYPE_CHECKING:
    from enricher.inference.device.session import Runtime, Session

_CUDA_OPTIONS = {
    "arena_extend_strategy": "kSameAsRequested",
    "do_copy_in_default_stream": "1",
    # The other precisions are measured against fp32, so it must be fp32.
    "use_tf32": "0",
}


def open_session(
    model: Path | bytes, runtime: Runtime, *, threads_per_run: int, concurrency: int = 1, device_id: int = 0
) -> Session:
    """Open a model. Raises ModelError if it does not open, or if another provider took a part of it.

    `concurrency` matters to OpenVINO only, whose runs share their threads. `device_id` is the GPU, as CUDA counts.
    """
    try:
        if PROVIDERS[runtime] == OPENVINO:
            return OpenVinoSession(model, runtime, streams=concurrency, threads=concurrency * threads_per_run)
        return _onnx_session(model, runtime, threads_per_run=threads_per_run, device_id=device_id)
    except SESSION_ERRORS as error:
        again = f" If {model.parent} is damaged, remove it: it is built again." if isinstance(model, Path) else ""
        raise ModelError(f"the model cannot be opened on {runtime}: {str(error).rstrip()}{again}") from error


def _onnx_session(model: Path | bytes, runtime: Runtime, *, threads_per_run: int, device_id: int) -> Session:
    source = model if isinstance(model, bytes) else str(model)
    options = {**_CUDA_OPTIONS, "device_id": str(device_id)} if runtime == "cuda" else {}
    # With its fallback ONNX Runtime prints why a provider does not work, and continues without it.
    session = ort.InferenceSession(
        source,
        _session_options(threads_per_run),
        providers=[(PROVIDERS[runtime], options)],
        enable_fallback=False,
    )
    if session.get_providers()[0] != PROVIDERS[runtime]:
        raise ModelError(f"ONNX Runtime fell back to {session.get_providers()[0]}.")
    opened = cast("Session", session)
    return FirstRunAlone(opened) if runtime == "cuda" else opened


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
