"""Everything that instruments and the status page read of a worker: identity, model, counters, snapshot, process, GPU.

GPUs are read with NVIDIA's management library, if `nvidia-ml-py` is installed.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from enricher.worker.records import ModelCard
from enricher.worker.stats import Counters, Snapshot


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """The identity of a worker. Known before anything is loaded; never changes."""

    instance: str
    group: str
    input_topic: str
    """The input topic, or all of them if there are several."""
    output_topic: str
    dead_letter_topic: str
    version: str


@dataclass(frozen=True, slots=True)
class ModelFacts(ModelCard):
    """The model that runs, and where."""

    provider: str
    """One of ONNX Runtime's execution providers, or OpenVINO."""
    device: str
    """`cpu` or `cuda`."""


@dataclass(frozen=True, slots=True)
class GpuUse:
    """One GPU, or the MIG slice of one, at this moment."""

    name: str
    utilization: float | None
    """The share of NVML's last sample period in which a kernel ran, 0 to 1; None with MIG, which does not measure it."""
    used_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Observed:
    """A built worker. `snapshot` and `gpus` do not block; any thread may call them."""

    worker: WorkerFacts
    model: ModelFacts
    counters: Counters
    snapshot: Callable[[], Snapshot]
    gpus: Callable[[], Sequence[GpuUse]] = tuple

    @property
    def catalogue_age_s(self) -> float | None:
        """The time since the newest file of the catalogue in use was written; None without a catalogue."""
        written_s = self.counters.catalogue_modified_s
        return None if written_s is None else max(0.0, time.time() - written_s)

    @property
    def catalogue_refused(self) -> float | None:
        """1 if a newer version of the catalogue is not in use because it is wrong, else 0; None without a catalogue."""
        return None if self.counters.catalogue_modified_s is None else float(self.counters.catalogue_refused)


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


def resident_bytes() -> int | None:
    """Resident memory of this process; None on systems without `/proc`."""
    if sys.platform != "linux":
        return None
    pages = Path("/proc/self/statm").read_text("ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
