"""The processor or GPU: its name, the features that decide how it multiplies, and the cores that this process may use."""

from __future__ import annotations

import contextlib
import math
import os
import platform
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from enricher.worker.inference.device import driver

if TYPE_CHECKING:
    from enricher.worker.inference.device.sessions import Device

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
