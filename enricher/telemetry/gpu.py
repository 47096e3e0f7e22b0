"""Utilisation and memory of the GPU that the worker uses, where NVIDIA's management library is there (`nvidia-ml-py`)."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

from enricher.telemetry.observed import GpuUse

log = logging.getLogger(__name__)


def gpu_meter(device_id: int | None) -> Callable[[], Sequence[GpuUse]]:
    """What to ask for the use of the GPU with this number; without a GPU, or without the library, it tells of none."""
    if device_id is None:
        return tuple
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
        handle = nvml.nvmlDeviceGetHandleByIndex(device_id)
    except Exception as error:  # noqa: BLE001  whatever is missing: the library, the driver, the right
        log.info("no GPU metrics: %s: %s (extra `cuda` brings nvidia-ml-py)", type(error).__name__, error)
        return tuple
    return lambda: _use(nvml, handle)


def _use(nvml: Any, handle: Any) -> Sequence[GpuUse]:  # noqa: ANN401  the library has no types
    try:
        name = nvml.nvmlDeviceGetName(handle)
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        busy_percent = nvml.nvmlDeviceGetUtilizationRates(handle).gpu
    except nvml.NVMLError:  # the device fell off the bus, say: the engine will tell
        return ()
    return (GpuUse(name, busy_percent / 100, int(memory.used), int(memory.total)),)
