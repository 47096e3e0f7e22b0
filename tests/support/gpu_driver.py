"""A stand-in for NVIDIA's driver: C functions made by ctypes, called as those of `libcuda` are. Needs no compiler."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, c_char, c_int, c_size_t, c_ubyte, c_uint, c_void_p
from dataclasses import dataclass, field
from typing import Any

import pytest

from enricher.worker.inference.device import driver

REFUSED = 999
"""CUDA_ERROR_UNKNOWN."""
INVALID_DEVICE = 101
HANDLE = 40
"""The driver's handle of the first GPU: its numbers are not the handles."""
CONTEXT = 0x7000


@dataclass
class FakeDriver:
    """GPUs by their names. A function in `lacks` is missing, and one in `refuses` fails; `calls` has the others in order."""

    gpus: list[str] = field(default_factory=lambda: ["NVIDIA L4", "NVIDIA H200"])
    free_bytes: int = 20 * 2**30
    active: bool = True
    """Whether this process has a context on its GPU."""
    lacks: set[str] = field(default_factory=set)
    refuses: set[str] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)
    flags: dict[int, int] = field(default_factory=dict)
    """By the number of the GPU."""

    def __post_init__(self) -> None:
        """The signatures are those of cuda.h."""
        self._initialized = False
        self._current: list[int | None] = []
        self._retained = 0
        functions: dict[str, tuple[Callable[..., int | None], tuple[Any, ...]]] = {
            "cuInit": (self._init, (c_uint,)),
            "cuDeviceGetCount": (self._count, (POINTER(c_int),)),
            "cuDeviceGet": (self._get, (POINTER(c_int), c_int)),
            "cuDeviceGetName": (self._name, (POINTER(c_char), c_int, c_int)),
            "cuDeviceGetPCIBusId": (self._bus_id, (POINTER(c_char), c_int, c_int)),
            "cuDeviceGetUuid_v2": (self._uuid, (POINTER(c_ubyte * 16), c_int)),
            "cuDevicePrimaryCtxSetFlags_v2": (self._set_flags, (c_int, c_uint)),
            "cuDevicePrimaryCtxGetState": (self._state, (c_int, POINTER(c_uint), POINTER(c_int))),
            "cuDevicePrimaryCtxRetain": (self._retain, (POINTER(c_void_p), c_int)),
            "cuDevicePrimaryCtxRelease_v2": (self._release, (c_int,)),
            "cuCtxPushCurrent_v2": (self._push, (c_void_p,)),
            "cuCtxPopCurrent_v2": (self._pop, (POINTER(c_void_p),)),
            "cuMemGetInfo_v2": (self._memory, (POINTER(c_size_t), POINTER(c_size_t))),
        }
        self._functions = {
            name: ctypes.CFUNCTYPE(c_int, *types)(self._counted(name, answer))
            for name, (answer, types) in functions.items()
        }

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  a C function
        """A function of the library."""
        if name.startswith("cu") and name in self._functions and name not in self.lacks:
            return self._functions[name]
        raise AttributeError(name)

    def install(self, monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
        """Take the place of `libcuda`."""
        monkeypatch.setattr(driver, "_library", lambda: self)
        driver.block_while_waiting.cache_clear()
        return self

    @property
    def balanced(self) -> bool:
        """True if every context that was retained or pushed was released and popped."""
        return not self._retained and not self._current

    def _counted(self, name: str, answer: Callable[..., int | None]) -> Callable[..., int]:
        def function(*arguments: Any) -> int:  # noqa: ANN401  of C
            if name in self.refuses or not (self._initialized or name == "cuInit"):
                return REFUSED
            self.calls.append(name)
            return answer(*arguments) or 0

        return function

    def _init(self, _flags: int) -> None:
        self._initialized = True

    def _count(self, count: Any) -> None:  # noqa: ANN401  a pointer
        count[0] = len(self.gpus)

    def _get(self, device: Any, index: int) -> int | None:  # noqa: ANN401  a pointer
        if not 0 <= index < len(self.gpus):
            return INVALID_DEVICE
        device[0] = HANDLE + index
        return None

    def _name(self, name: Any, size: int, device: int) -> None:  # noqa: ANN401  a pointer
        _write(name, size, self.gpus[device - HANDLE])

    def _bus_id(self, bus_id: Any, size: int, device: int) -> None:  # noqa: ANN401  a pointer
        _write(bus_id, size, f"0000:{0x3B + device - HANDLE:02X}:00.0")

    def _uuid(self, identity: Any, device: int) -> None:  # noqa: ANN401  a pointer
        for place in range(16):
            identity.contents[place] = device - HANDLE if place == 15 else 0xAB

    def _set_flags(self, device: int, flags: int) -> None:
        self.flags[device - HANDLE] = flags

    def _state(self, _device: int, flags: Any, active: Any) -> None:  # noqa: ANN401  pointers
        flags[0], active[0] = 0, int(self.active)

    def _retain(self, context: Any, device: int) -> None:  # noqa: ANN401  a pointer
        self._retained += 1
        context[0] = CONTEXT + device

    def _release(self, _device: int) -> None:
        self._retained -= 1

    def _push(self, context: int | None) -> None:
        self._current.append(context)

    def _pop(self, context: Any) -> None:  # noqa: ANN401  a pointer
        context[0] = self._current.pop()

    def _memory(self, free: Any, total: Any) -> int | None:  # noqa: ANN401  pointers
        if not self._current or (self._current[-1] or 0) < CONTEXT + HANDLE:
            return 201  # CUDA_ERROR_INVALID_CONTEXT
        free[0], total[0] = self.free_bytes, 24 * 2**30
        return None


def _write(target: Any, size: int, text: str) -> None:  # noqa: ANN401  a pointer
    content = text.encode()[: size - 1] + b"\0"
    ctypes.memmove(target, content, len(content))
