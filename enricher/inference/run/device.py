"""Which device runs the model, how many runs it takes at once, and how a session on it is opened.

Falling back in silence is refused here: what was asked for is what runs. What is OpenVINO's is openvino_session.py's.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import logging
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol, cast

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper
from onnxruntime.capi import onnxruntime_pybind11_state as ort_state

from enricher.errors import ModelError
from enricher.inference.run import openvino_session
from enricher.inference.run.first_run import FirstRunAlone
from enricher.runtime.devices import DeviceName, parse_device

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    from enricher.inference.graph.variants import Feeds, Runtime

Device = Literal["cpu", "cuda"]

PROVIDERS: dict[Runtime, str] = {
    "cpu": "CPUExecutionProvider",
    "cuda": "CUDAExecutionProvider",
    "openvino-bf16": openvino_session.NAME,
    "openvino-fp32": openvino_session.NAME,
}

SESSION_ERRORS: tuple[type[Exception], ...] = (
    *(kind for kind in vars(ort_state).values() if isinstance(kind, type) and issubclass(kind, Exception)),
    RuntimeError,
    MemoryError,
)
"""What a session raises. ONNX Runtime's own errors share no base class; allocation can fail as either of the last two, and
OpenVINO knows only these."""

_PROBE_ERRORS: tuple[type[Exception], ...] = (ModelError, *SESSION_ERRORS)
_PROVIDER_OPTIONS = {
    "cuda": {
        "arena_extend_strategy": "kSameAsRequested",
        "do_copy_in_default_stream": "1",
        # fp32 is what the other precisions are measured against, so it must be fp32.
        "use_tf32": "0",
    }
}
CUDA_CONCURRENCY = 2
"""One run computes while the other is fed: more add nothing to a full GPU."""
_CGROUP = Path("/sys/fs/cgroup")
_NO_CUDA = (
    "device {name} was asked for, and ONNX Runtime cannot use CUDA here: {why}. Install the driver, `onnxruntime-gpu` in "
    "the place of `onnxruntime`, and the CUDA libraries (the extra `cuda`, `pip install '.[cuda]'`); or set the device "
    "to cpu."
)
_NO_SUCH_GPU = (
    "device {name} was asked for, and this process sees {count} GPU(s): {seen}. CUDA_VISIBLE_DEVICES may hide some."
)
_working: set[int] = set()
"""The GPUs on which a session has opened. A process must open none elsewhere: that takes a GPU's memory for nothing."""
_log = logging.getLogger(__name__)


def resolve_device(asked: str) -> Device:
    """The kind of device to use: `auto` takes CUDA where a session on it opens, `cuda` raises ModelError where none does.

    Which GPU it is, `parse_device` says. Raises SettingsError for what is no device's name.
    """
    device = parse_device(asked)
    if device.kind == "cpu":
        return "cpu"
    why_not = cuda_problem(device.index)
    if why_not is None:
        return "cuda"
    if device.kind == "cuda":
        raise ModelError(_no_cuda(device, why_not))
    _log.info("no CUDA (%s): using the CPU", why_not)
    return "cpu"


def _no_cuda(device: DeviceName, why_not: str) -> str:
    count = _gpus()
    if not 0 < count <= device.index:
        return _NO_CUDA.format(name=device, why=why_not)
    return _NO_SUCH_GPU.format(name=device, count=count, seen=", ".join(f"cuda:{each}" for each in range(count)))


def cuda_problem(index: int | None = None) -> str | None:
    """Why the GPU of that number cannot be used; None where it can. Without a number: any that was seen to work will do.

    Runs a tiny model, for a listed provider may not load, and one that loads may have no kernels for this GPU, or no cuDNN.
    """
    if index in _working or (index is None and _working):
        return None
    if PROVIDERS["cuda"] not in ort.get_available_providers():
        return "this ONNX Runtime was built without it"
    if not _driver_present():
        return "there is no NVIDIA driver"
    printed = _preload_cuda_libraries()
    try:
        session = open_session(_probe_model(), "cuda", threads_per_run=1, device_id=index or 0)
        session.run(["y"], {"x": np.zeros(2, np.float32)})
    except _PROBE_ERRORS as error:
        return f"{error} {printed}".strip()
    _working.add(index or 0)
    return None


def _provider(runtime: Runtime, device_id: int) -> tuple[str, dict[str, str]]:
    """A provider as a session takes it, with its options."""
    options = _PROVIDER_OPTIONS.get(runtime, {})
    return PROVIDERS[runtime], {**options, "device_id": str(device_id)} if runtime == "cuda" else options


class Session(Protocol):
    """An open model, for any number of threads to call."""

    def run(self, outputs: Sequence[str], feeds: Feeds, /) -> list[npt.NDArray[Any]]:
        """The outputs of that name, in that order. Blocks for the length of a run. Raises one of SESSION_ERRORS."""
        ...


def open_session(
    model: Path | bytes, runtime: Runtime, *, threads_per_run: int, concurrency: int = 1, device_id: int = 0
) -> Session:
    """Open a model. Raises ModelError where it does not open, or another provider took a part of it.

    `concurrency` is how many runs go on at once; only OpenVINO must know beforehand: its threads are shared by all of them.
    `device_id` is which GPU, as CUDA counts.
    """
    try:
        if PROVIDERS[runtime] == openvino_session.NAME:
            return openvino_session.OpenVinoSession(
                model, runtime, streams=concurrency, threads=concurrency * threads_per_run
            )
        return _onnx_session(model, runtime, threads_per_run=threads_per_run, device_id=device_id)
    except SESSION_ERRORS as error:
        again = f" If {model.parent} is damaged, remove it: it is built again." if isinstance(model, Path) else ""
        raise ModelError(f"the model cannot be opened on {runtime}: {str(error).rstrip()}{again}") from error


def _onnx_session(model: Path | bytes, runtime: Runtime, *, threads_per_run: int, device_id: int) -> Session:
    source = model if isinstance(model, bytes) else str(model)
    # With its fallback ONNX Runtime prints why a provider does not work, and goes on without it.
    session = ort.InferenceSession(
        source, _options(threads_per_run), providers=[_provider(runtime, device_id)], enable_fallback=False
    )
    if session.get_providers()[0] != PROVIDERS[runtime]:
        raise ModelError(f"ONNX Runtime fell back to {session.get_providers()[0]}.")
    opened = cast("Session", session)
    return FirstRunAlone(opened) if runtime == "cuda" else opened


def _options(threads_per_run: int) -> ort.SessionOptions:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads_per_run
    options.inter_op_num_threads = 1
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 4  # fatal: its errors come back as exceptions, and are reported once, by us
    # Batches differ in shape, and a memory pattern is kept for each shape ever seen.
    options.enable_mem_pattern = False
    # Spinning threads take the cores from tokenising and from Kafka's client, even while there is nothing to run.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def default_concurrency(device: Device) -> int:
    """Runs at once: two on CUDA; on a CPU one per core that this process may use, with one thread each."""
    return CUDA_CONCURRENCY if device == "cuda" else available_cores()


def available_cores() -> int:
    """Cores that this process may use: affinity and the container's quota respected, at least 1."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    quota = _cgroup_quota_cores(_CGROUP)
    # A quota of 2.5 makes two runs at once: the half is for everything else, and a throttled thread stalls its whole batch.
    return cores if quota is None else max(1, min(cores, math.floor(quota)))


def _cgroup_quota_cores(root: Path) -> float | None:
    """CPU quota of the container in cores, from cgroup v2 or v1; None where there is none."""
    with contextlib.suppress(OSError, ValueError):
        quota, period = (root / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    with contextlib.suppress(OSError, ValueError):
        quota_us = int((root / "cpu/cpu.cfs_quota_us").read_text())
        return None if quota_us <= 0 else quota_us / int((root / "cpu/cpu.cfs_period_us").read_text())
    return None


def _driver_present() -> bool:
    return _driver() is not None


def _driver() -> ctypes.CDLL | None:
    for name in ("libcuda.so.1", "nvcuda.dll"):
        with contextlib.suppress(OSError):
            return ctypes.CDLL(name)
    return None


def _gpus() -> int:
    """How many GPUs the driver shows to this process; 0 where it does not say (`cuDeviceGetCount`, CUDA driver API)."""
    driver, count = _driver(), ctypes.c_int(0)
    if driver is None or driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return 0
    return count.value


def _preload_cuda_libraries() -> str:
    """Load CUDA from its Python packages. What ONNX Runtime prints about it belongs in our message, not on stdout."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        ort.preload_dlls()
    return _last_lines(printed.getvalue().splitlines())


def _last_lines(lines: Iterable[str]) -> str:
    return "; ".join(line.strip() for line in list(lines)[-3:] if line.strip())


def _probe_model() -> bytes:
    """ReduceMax is in every graph of ours, and ONNX Runtime leaves it to cuDNN."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [size]) for name, size in (("x", 2), ("y", 1))]
    nodes = [helper.make_node("Exp", ["x"], ["e"]), helper.make_node("ReduceMax", ["e"], ["y"])]
    graph = helper.make_graph(nodes, "probe", ends[:1], ends[1:])
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    content: bytes = model.SerializeToString()
    return content
