"""Asks CUDA's driver itself for memory of the GPU, so that nobody else gets it."""

from __future__ import annotations

import contextlib
import ctypes
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def memory_held(leave_bytes: int) -> Iterator[int]:
    """Allocate all of the first GPU's memory but `leave_bytes`. Yields the bytes held."""
    driver, context, free, total, pointer = open_driver(), ctypes.c_void_p(), *(ctypes.c_size_t() for _ in range(3))
    check(driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), "cuDevicePrimaryCtxRetain")
    check(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    check(driver.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)), "cuMemGetInfo")
    held = max(0, free.value - leave_bytes)
    if held:
        check(driver.cuMemAlloc_v2(ctypes.byref(pointer), ctypes.c_size_t(held)), "cuMemAlloc")
    try:
        yield held
    finally:
        driver.cuMemFree_v2(pointer)
        driver.cuDevicePrimaryCtxRelease_v2(0)


def open_driver() -> ctypes.CDLL:
    """NVIDIA's driver, ready for calls. Raises OSError."""
    driver = ctypes.CDLL("libcuda.so.1")
    check(driver.cuInit(0), "cuInit")
    return driver


def check(result: int, call: str) -> None:
    """Raise OSError unless the call succeeded."""
    if result != 0:
        raise OSError(f"{call} answered {result}")
