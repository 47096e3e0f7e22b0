"""What the steps ask of CUDA's driver itself: how threads wait for the GPU, and memory that nobody else gets."""

from __future__ import annotations

import contextlib
import ctypes
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

WAITING = {"auto": 0, "blocking": 4}
"""CU_CTX_SCHED_AUTO, with which a thread spins where there are more cores than contexts, and CU_CTX_SCHED_BLOCKING_SYNC."""


def set_waiting(how: str) -> int:
    """Make threads of this process wait so, on the first GPU. Returns the flags that the driver then has."""
    driver, flags, active = _driver(), ctypes.c_uint(), ctypes.c_int()
    _check(driver.cuDevicePrimaryCtxSetFlags_v2(0, WAITING[how]), "cuDevicePrimaryCtxSetFlags")
    _check(
        driver.cuDevicePrimaryCtxGetState(0, ctypes.byref(flags), ctypes.byref(active)), "cuDevicePrimaryCtxGetState"
    )
    return flags.value


@contextlib.contextmanager
def memory_held(leave_bytes: int) -> Iterator[int]:
    """Allocate all of the first GPU's memory but `leave_bytes`. Yields the bytes held."""
    driver, context, free, total, pointer = _driver(), ctypes.c_void_p(), *(ctypes.c_size_t() for _ in range(3))
    _check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), "cuDevicePrimaryCtxRetain")
    _check(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    _check(driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)), "cuMemGetInfo")
    held = max(0, free.value - leave_bytes)
    if held:
        _check(driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(held)), "cuMemAlloc")
    try:
        yield held
    finally:
        driver.cuMemFree_v2(pointer)
        driver.cuDevicePrimaryCtxRelease_v2(0)


def _driver() -> ctypes.CDLL:
    driver = ctypes.CDLL("libcuda.so.1")
    _check(driver.cuInit(0), "cuInit")
    return driver


def _check(result: int, call: str) -> None:
    if result != 0:
        raise OSError(f"{call} answered {result}")
