"""Describes the machine, and measures the CPU load of this process, the broker, and everything else."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import psutil

from enricher.distribution import installed_version
from enricher.worker.inference.device.hardware import processor_features, processor_name

_FEATURES = ("amx_bf16", "avx512_bf16", "avx512_vnni", "avx_vnni", "avx2")


@dataclass(frozen=True, slots=True)
class Load:
    """Mean number of busy cores over `seconds`: of the broker, of others than it, and of this process with its children."""

    seconds: float
    broker_cores: float
    others_cores: float
    own_cores: float = 0.0


class LoadMeter:
    """Measures from construction to `read`. `broker_pids` is called at both ends, since a broker may restart."""

    def __init__(self, broker_pids: Callable[[], Collection[int]] = tuple) -> None:
        self._broker_pids = broker_pids
        self._began = self._now()

    def read(self) -> Load:
        """The load since construction."""
        (began_s, busy, own, broker), (now_s, busy_now, own_now, broker_now) = self._began, self._now()
        seconds = max(now_s - began_s, 1e-9)
        own_s, broker_s = own_now - own, broker_now - broker
        others_s = max(0.0, busy_now - busy - own_s - broker_s)
        return Load(seconds, broker_s / seconds, others_s / seconds, own_s / seconds)

    def _now(self) -> tuple[float, float, float, float]:
        brokers = set(self._broker_pids())
        children = {child.pid for child in psutil.Process().children(recursive=True)} - brokers
        ended = os.times()
        own_s = sum(map(cpu_s, {os.getpid(), *children})) + ended.children_user + ended.children_system
        return time.monotonic(), machine_cpu_s(), own_s, sum(map(cpu_s, brokers))


def describe() -> dict[str, Any]:
    """Processor, cores, memory and relevant versions, for the head of a report."""
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {"enricher": installed_version()}
        | {name: version(name) for name in ("confluent-kafka", "numpy", "tokenizers")},
    }


def processor() -> str:
    """Number and name of the processors, and the features that decide which graph variant runs."""
    known = set(processor_features())
    features = ", ".join(name for name in _FEATURES if name in known) or "none of ours"
    return f"{os.cpu_count()} x {processor_name('cpu')} ({features})"


def cpu_s(pid: int) -> float:
    """CPU time of a process so far; 0 if it has ended."""
    try:
        times = psutil.Process(pid).cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system)


def machine_cpu_s() -> float:
    """CPU time of the whole machine so far."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))
