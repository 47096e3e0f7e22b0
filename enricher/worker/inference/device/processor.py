"""The name of the processor or GPU, and the features that decide how the processor multiplies."""

from __future__ import annotations

import contextlib
import platform
from pathlib import Path
from typing import TYPE_CHECKING

from enricher.worker.inference.device import driver

if TYPE_CHECKING:
    from enricher.worker.inference.device.session import Device

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
