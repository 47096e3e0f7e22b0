"""Facts about a GPU from NVIDIA's driver, and how threads wait for it (CUDA driver API). Computes nothing on the GPU.

If the driver is missing, lacks a function or refuses a call, the answer is None; nothing is raised.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import logging
import uuid
from dataclasses import dataclass
from typing import Any

_BLOCKING_SYNC = 4
"""CU_CTX_SCHED_BLOCKING_SYNC (cuda.h)."""
_NAME_BYTES = 256
_BUS_ID_BYTES = 32

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU, or a MIG slice, which has its own name and UUID but the bus id of its GPU."""

    name: str
    pci_bus_id: str
    """The bus id, such as `0000:3B:00.0`."""
    uuid: str | None
    """The UUID without the prefix `GPU-` or `MIG-`; None if the driver is older than 11.4."""


def is_installed() -> bool:
    """True if there is a driver, whether or not it works."""
    return _library() is not None


def gpu_count() -> int:
    """How many GPUs the driver shows to this process; 0 if unknown."""
    count = ctypes.c_int(0)
    problem = _call("cuInit", 0) or _call("cuDeviceGetCount", ctypes.byref(count))
    return 0 if problem else count.value


def gpu(index: int) -> Gpu | None:
    """The GPU of that number, as CUDA counts the GPUs that this process sees; None if unknown."""
    device = _device(index)
    name, bus_id = ctypes.create_string_buffer(_NAME_BYTES), ctypes.create_string_buffer(_BUS_ID_BYTES)
    if (
        device is None
        or _call("cuDeviceGetName", name, _NAME_BYTES, device)
        or _call("cuDeviceGetPCIBusId", bus_id, _BUS_ID_BYTES, device)
    ):
        return None
    identity = (ctypes.c_ubyte * 16)()
    unknown = _call("cuDeviceGetUuid_v2", identity, device)
    known = None if unknown else str(uuid.UUID(bytes=bytes(identity)))
    return Gpu(name.value.decode(errors="replace"), bus_id.value.decode("ascii", "replace"), known)


def free_bytes(index: int) -> int | None:
    """Free memory of the GPU, or of the MIG slice. None if unknown, or before this process has computed on it.

    Asking earlier would create a context, which takes a third of a second and memory.
    """
    device = _device(index)
    flags, active = ctypes.c_uint(), ctypes.c_int()
    states = (ctypes.byref(flags), ctypes.byref(active))
    if device is None or _call("cuDevicePrimaryCtxGetState", device, *states) or not active.value:
        return None
    context = ctypes.c_void_p()
    if _call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device):
        return None
    try:
        return _free_bytes_of(context)
    finally:
        _call("cuDevicePrimaryCtxRelease_v2", device)


def _free_bytes_of(context: ctypes.c_void_p) -> int | None:
    if _call("cuCtxPushCurrent_v2", context):
        return None
    free, total, popped = ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_void_p()
    problem = _call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    _call("cuCtxPopCurrent_v2", ctypes.byref(popped))
    return None if problem else free.value


@functools.cache
def block_while_waiting(index: int) -> None:
    """Let threads sleep until the GPU is done. Call it before anything else creates a context on that GPU.

    By default each thread polls on a whole core if fewer GPUs than cores are in use; ONNX Runtime does not change that.
    """
    device = _device(index)
    if device is None:
        return  # opening a session there reports the problem
    if problem := _call("cuDevicePrimaryCtxSetFlags_v2", device, _BLOCKING_SYNC):
        _log.warning("threads that wait for the GPU take a whole core each: %s", problem)


def _device(index: int) -> ctypes.c_int | None:
    """The driver's handle of a GPU."""
    device = ctypes.c_int()
    problem = _call("cuInit", 0) or _call("cuDeviceGet", ctypes.byref(device), index)
    return None if problem else device


def _call(function: str, *arguments: Any) -> str | None:  # noqa: ANN401  as ctypes takes them
    """Call a function of the driver. Returns why it failed; None if it succeeded."""
    library = _library()
    if library is None:
        return "there is no NVIDIA driver"
    try:
        code: int = getattr(library, function)(*arguments)
    except AttributeError:
        return f"the driver has no {function}"
    return f"{function} fails with CUDA error {code}" if code else None


def _library() -> ctypes.CDLL | None:
    for name in ("libcuda.so.1", "nvcuda.dll"):
        with contextlib.suppress(OSError):
            return ctypes.CDLL(name)
    return None
