"""How many cores this process may use, and how many runs of the model they carry at once."""

from __future__ import annotations

import contextlib
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from enricher.worker.inference.device.session import Device

CUDA_CONCURRENCY = 2
"""One run computes while the next one's input is copied; more add nothing on a busy GPU."""
_CGROUP = Path("/sys/fs/cgroup")


def default_concurrency(device: Device) -> int:
    """Two on CUDA; on a CPU one run per core that this process may use, with one thread each."""
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
