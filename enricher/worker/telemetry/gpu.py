"""Reads the GPU's utilisation and memory with NVIDIA's management library, if `nvidia-ml-py` is installed."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

from enricher.worker.telemetry.observed import GpuUse

log = logging.getLogger(__name__)


def gpu_meter(pci_bus_id: str, uuid: str | None) -> Callable[[], Sequence[GpuUse]]:
    """Return a function that reads this GPU; without the library, it returns nothing.

    A number does not identify a GPU: CUDA counts the GPUs that a process sees, the fastest first, and the library all.
    """
    try:
        nvml = importlib.import_module("pynvml")
        nvml.nvmlInit()
        handle = _mig_slice(nvml, uuid) or nvml.nvmlDeviceGetHandleByPciBusId(pci_bus_id)
    except Exception as error:  # noqa: BLE001  the library, the driver or the permission may be missing
        log.info("no GPU metrics: %s: %s (install the extra `cuda`)", type(error).__name__, error)
        return tuple
    return lambda: _use(nvml, handle)


def _mig_slice(nvml: Any, uuid: str | None) -> Any:  # noqa: ANN401  the library has no types
    """The handle of the MIG slice with this UUID; None for a whole GPU."""
    if uuid is None:
        return None
    try:
        return nvml.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}")
    except nvml.NVMLError:
        return None


def _use(nvml: Any, handle: Any) -> Sequence[GpuUse]:  # noqa: ANN401  the library has no types
    try:
        name = nvml.nvmlDeviceGetName(handle)
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
    except nvml.NVMLError:  # for example, the device fell off the bus: the engine reports that itself
        return ()
    return (GpuUse(name, _utilization(nvml, handle), int(memory.used), int(memory.total)),)


def _utilization(nvml: Any, handle: Any) -> float | None:  # noqa: ANN401  the library has no types
    try:
        busy_percent: int = nvml.nvmlDeviceGetUtilizationRates(handle).gpu
    except nvml.NVMLError:  # not supported with MIG
        return None
    return busy_percent / 100
