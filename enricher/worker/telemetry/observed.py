"""Everything that instruments and the status page read of a worker: identity, model, counters, snapshot, process, GPU."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from enricher.worker.records import ModelCard
from enricher.worker.stats.counters import Counters
from enricher.worker.stats.snapshot import Snapshot


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


def resident_bytes() -> int | None:
    """Resident memory of this process; None on systems without `/proc`."""
    if sys.platform != "linux":
        return None
    pages = Path("/proc/self/statm").read_text("ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
