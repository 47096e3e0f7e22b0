"""Reads the GPU's utilisation and memory with NVIDIA's management library, if `nvidia-ml-py` is installed."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

from enricher.telemetry.observed import GpuUse

log = logging.getLogger(__name__)


def gpu_meter(device_id: int | None) -> Callable[[], Sequence[GpuUse]]:
    """Return a function that reads the GPU with this number; it returns nothing without a GPU or without the library."""
    if device_id is None:
        return tuple
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByIndex(device_id)
    except Exception as error:  # noqa: BLE001  the library, the driver or the permission may be missing
        log.info("no GPU metrics: %s: %s (install the extra `cuda`)", type(error).__name__, error)
        return tuple
    return lambda: _use(nvml, handle)


def _use(nvml: Any, handle: Any) -> Sequence[GpuUse]:  # noqa: ANN401  the library has no types
    try:
        name = nvml.nvmlDeviceGetName(handle)
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        busy_percent = nvml.nvmlDeviceGetUtilizationRates(handle).gpu
    except nvml.NVMLError:  # for example, the device fell off the bus: the engine reports that itself
        return ()
    return (GpuUse(name, busy_percent / 100, int(memory.used), int(memory.total)),)
