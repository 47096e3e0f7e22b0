"""Checks of the machine: its cores and its memory."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from enricher.operate.doctor.findings import Finding, Reporter
from enricher.worker.inference.device.cores import available_cores
from enricher.worker.settings import Settings

_CGROUP_LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))

_machine = Reporter("machine")


def machine_findings(settings: Settings) -> Iterator[Finding]:
    """Cores and memory; call it once the model is loaded, so that its memory counts."""
    yield _machine.ok("cores", f"{available_cores()} that this process may use")
    limit_bytes, peak_bytes = memory_limit_bytes(), _peak_bytes()
    if limit_bytes is None or peak_bytes is None:
        yield _machine.ok("memory", "this system does not report it")
        return
    # Raw records, their decoded texts and their tokens: about three times the bytes in flight.
    needed_bytes = peak_bytes + 3 * settings.worker.max_in_flight_bytes
    seen = f"{limit_bytes / 1e9:.1f} GB; with the model loaded {peak_bytes / 1e9:.1f} GB of it are in use"
    if limit_bytes < needed_bytes:
        advice = f"Up to {needed_bytes / 1e9:.1f} GB may be used: raise the limit, or lower worker.max_in_flight_bytes."
        yield _machine.warn("memory", seen, advice)
    else:
        yield _machine.ok("memory", f"{seen}, up to {needed_bytes / 1e9:.1f} GB may be used")


def memory_limit_bytes() -> int | None:
    """Memory that this process may use: the limit of the container or the machine; None if unknown."""
    limits = []
    for path in _CGROUP_LIMITS:
        with contextlib.suppress(OSError, ValueError):
            limits.append(int(path.read_text()))
    with contextlib.suppress(OSError, ValueError, AttributeError):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    return min(limits, default=None)


def _peak_bytes() -> int | None:
    """Peak resident memory of this process."""
    try:
        import resource  # noqa: PLC0415  POSIX only
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # bytes there, kibibytes elsewhere
