"""Finds the device that runs the model from the name in the settings, and what a processor can compute.

A named device that does not work is an error. That ONNX Runtime can use CUDA here is proved by running a tiny model.
What the driver of a GPU says is read in driver.py.
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import os
import platform
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

from enricher.distribution import install_command
from enricher.errors import ModelError
from enricher.worker.inference.device import driver
from enricher.worker.inference.device.sessions import PROVIDERS, SESSION_ERRORS, Device, open_session
from enricher.worker.runtime.devices import DeviceName, parse_device

_NO_CUDA = (
    "device {name} was asked for, and ONNX Runtime cannot use CUDA here: {why}. Install the driver, `onnxruntime-gpu` "
    "instead of `onnxruntime`, and the CUDA libraries (`{install}`); or set the device "
    "to cpu."
)
_NO_SUCH_GPU = (
    "device {name} was asked for, and this process sees {count} GPU(s): {seen}. CUDA_VISIBLE_DEVICES may hide some."
)

_log = logging.getLogger(__name__)


def resolve_device(asked: str) -> Device:
    """The kind of device to use: `auto` takes CUDA where it works, `cuda` raises ModelError where it does not.

    `parse_device` gives the number of the GPU. Raises SettingsError for an unknown name.
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
    count = driver.gpu_count()
    if not 0 < count <= device.index:
        return _NO_CUDA.format(name=device, why=why_not, install=install_command("cuda"))
    return _NO_SUCH_GPU.format(name=device, count=count, seen=", ".join(f"cuda:{each}" for each in range(count)))


_PROBE_ERRORS: tuple[type[Exception], ...] = (ModelError, *SESSION_ERRORS)
_working: set[int] = set()
"""The GPUs on which the tiny model has run. Running it on another GPU would only take memory there."""


def cuda_problem(index: int | None = None) -> str | None:
    """Why the GPU of that number cannot be used; None if it can. Without a number, any GPU that has worked counts.

    Runs a tiny model, because a listed provider may not load, and a loaded one may lack cuDNN or kernels for this GPU. From
    here on threads sleep while they wait for the GPU, so that the tokenizer has their cores: the tiny model is the first
    thing that the process runs on the GPU.
    """
    if index in _working or (index is None and _working):
        return None
    if PROVIDERS["cuda"] not in ort.get_available_providers():
        return "this ONNX Runtime was built without it"
    if not driver.is_installed():
        return "there is no NVIDIA driver"
    # Errors say why the provider does not load; the warnings are about providers that are not plugins.
    ort.set_default_logger_severity(3)
    printed = _preload_cuda_libraries()
    driver.block_while_waiting(index or 0)
    try:
        # If nodes on the CPU were refused, the error would be about those, not about the provider that does not load.
        session = open_session(_probe_model(), "cuda", threads_per_run=1, device_id=index or 0, cpu_nodes=True)
        session.run(["y"], {"x": np.zeros(2, np.float32)})
    except _PROBE_ERRORS as error:
        return f"{error} {printed}".strip()
    _working.add(index or 0)
    # CUDA errors come back as exceptions; without this they are also printed.
    ort.set_default_logger_severity(4)
    return None


def _preload_cuda_libraries() -> str:
    """Load CUDA from its Python packages. Returns the last lines that ONNX Runtime prints, which belong in our message."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        ort.preload_dlls()
    return "; ".join(line.strip() for line in printed.getvalue().splitlines()[-3:] if line.strip())


def _probe_model() -> bytes:
    """A model with ReduceMax, which is in every graph of ours and which ONNX Runtime computes with cuDNN."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [size]) for name, size in (("x", 2), ("y", 1))]
    nodes = [helper.make_node("Exp", ["x"], ["e"]), helper.make_node("ReduceMax", ["e"], ["y"])]
    graph = helper.make_graph(nodes, "probe", ends[:1], ends[1:])
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    content: bytes = model.SerializeToString()
    return content


FEATURES = (
    "avx2",
    "avx512f",
    "avx512_vnni",
    "avx_vnni",
    "avx512_bf16",
    "amx_bf16",
    "amx_int8",
    "asimd",
    "i8mm",
    "bf16",
)
"""The features by their names in Linux, x86 first, then Arm."""
INT8_FEATURES = frozenset({"avx512_vnni", "avx_vnni", "amx_int8"})
"""Without one of these, sums of uint8 x int8 saturate in 16 bits: wrong answers, and no faster."""
_CPU_INFO = Path("/proc/cpuinfo")
UNKNOWN_GPU = "an NVIDIA GPU"
"""The name of a GPU whose driver gives none."""


def processor_name(device: Device, index: int = 0) -> str:
    """The system's name for the processor, or with `cuda` the driver's name for the GPU of that number (`NVIDIA L4`)."""
    if device == "cuda":
        found = driver.gpu(index)
        return found.name if found else UNKNOWN_GPU
    return _value("model name", _CPU_INFO) or platform.processor() or platform.machine()


def processor_features() -> tuple[str, ...]:
    """The processor's FEATURES; empty if the system does not list them."""
    flags = set((_value("flags", _CPU_INFO) or _value("Features", _CPU_INFO)).split())
    return tuple(feature for feature in FEATURES if feature in flags)


def int8_problem() -> str | None:
    """Why int8 products cannot run on this processor, as a clause for a message; None if they can."""
    features = processor_features()
    if not features:
        return "this system does not say whether its processor has VNNI"
    return None if INT8_FEATURES & set(features) else "the processor has neither VNNI nor AMX"


def _value(key: str, path: Path) -> str:
    """The value of the first line `key: value`; empty if there is none."""
    with contextlib.suppress(OSError):
        for line in path.read_text().splitlines():
            name, colon, value = line.partition(":")
            if colon and name.strip() == key:
                return value.strip()
    return ""


CUDA_CONCURRENCY = 2
"""One run computes while the next one's input is copied; more add nothing on a busy GPU."""
_CGROUP = Path("/sys/fs/cgroup")


def default_concurrency(device: Device) -> int:
    """The default: two runs on CUDA; on a CPU one run per core that this process may use, with one thread each."""
    return CUDA_CONCURRENCY if device == "cuda" else available_cores()


def available_cores() -> int:
    """Cores that this process may use, at least 1: the CPU affinity and the container's quota count."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    quota = _cgroup_quota_cores(_CGROUP)
    # A quota of 2.5 makes two runs: the half is for everything else, and one throttled thread delays its whole batch.
    return cores if quota is None else max(1, min(cores, math.floor(quota)))


def _cgroup_quota_cores(root: Path) -> float | None:
    """The container's CPU quota in cores, from cgroup v2 or v1; None if there is none."""
    with contextlib.suppress(OSError, ValueError):
        quota, period = (root / "cpu.max").read_text().split()
        return None if quota == "max" else int(quota) / int(period)
    with contextlib.suppress(OSError, ValueError):
        quota_us = int((root / "cpu/cpu.cfs_quota_us").read_text())
        return None if quota_us <= 0 else quota_us / int((root / "cpu/cpu.cfs_period_us").read_text())
    return None
