"""What the instruments read: a worker's counts and snapshot, its model, its process and its GPU."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from enricher.stats.counters import Counters
from enricher.stats.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Which model, and how it runs."""

    name: str
    digest: str
    precision: str
    provider: str
    """As ONNX Runtime names it."""
    device: str


@dataclass(frozen=True, slots=True)
class GpuUse:
    """One GPU at this moment. `utilization`: share of the last sample period in which a kernel ran, 0 to 1."""

    name: str
    utilization: float
    used_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class Observed:
    """A worker that is looked at. `snapshot` and `gpus` are asked when somebody scrapes or exports, in that thread."""

    input_topic: str
    output_topic: str
    dead_letter_topic: str
    group: str
    version: str
    model: ModelFacts
    counters: Counters
    snapshot: Callable[[], Snapshot]
    gpus: Callable[[], Sequence[GpuUse]] = tuple


def cpu_s() -> float:
    """Processor seconds of this process, user and system."""
    times = os.times()
    return times.user + times.system


def resident_bytes() -> int | None:
    """Memory of this process that is in RAM; None where the system does not say it in `/proc`."""
    if sys.platform != "linux":
        return None
    pages = Path("/proc/self/statm").read_text("ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
