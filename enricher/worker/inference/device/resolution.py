"""Finds the device that runs the model from the name in the settings. A named device that does not work is an error.

That ONNX Runtime can use CUDA here is proved by running a tiny model.
"""

from __future__ import annotations

import contextlib
import io
import logging

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
