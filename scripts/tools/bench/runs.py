"""Runs of contenders in turns, and the CPU load meanwhile: of this process, the broker, and everything else.

Contenders take turns, so that background load affects all of them equally. A run during which other processes used more
than `QUIET_CORES` is disturbed; it is repeated, at most `AGAIN` times.
"""

from __future__ import annotations

import math
import os
import platform
import statistics
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Protocol, TypeVar

import psutil

from enricher.distribution import installed_version
from enricher.worker.inference.device.hardware import processor_features, processor_name
from tools.bench.outcome import Claim
from tools.waiting import cpu_s

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


def machine_cpu_s() -> float:
    """CPU time of the whole machine so far."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - getattr(times, "iowait", 0.0) - getattr(times, "guest", 0.0))


QUIET_CORES = 0.15
"""The system's own background work stays below this; a browser or a compiler does not."""
MIN_FOR_P99 = 100
"""With fewer values the 99th percentile would be the largest value, which says little."""
AGAIN = 2
"""How often a disturbed run is repeated before it is kept and marked."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one contender: its rate per second, the load during it, and further details."""

    rate: float
    load: Load
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def others_cores(self) -> float:
        """Mean number of cores that other processes used."""
        return self.load.others_cores


class Disturbable(Protocol):
    """A result that knows how many cores other processes used meanwhile."""

    @property
    def others_cores(self) -> float:
        """Their mean number."""


Result = TypeVar("Result", bound=Disturbable)


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, lowest and highest value of some repetitions."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """From at least one value."""
        return cls(statistics.median(values), min(values), max(values))

    def __format__(self, spec: str) -> str:
        median, low, high = (format(value, spec or ".3g") for value in (self.median, self.low, self.high))
        return f"{median} ({low} to {high})"

    def __str__(self) -> str:
        return format(self)


def percentile(values: Sequence[float], share: float) -> float:
    """Nearest rank: the smallest value that at least `share` of all values (0 to 1) do not exceed."""
    assert values, "of at least one value"
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def p99(values: Sequence[float]) -> float | None:
    """The 99th percentile; None if there are fewer than `MIN_FOR_P99` values."""
    return percentile(values, 0.99) if len(values) >= MIN_FOR_P99 else None


def interleave(
    contenders: Mapping[str, Callable[[], Run]], repetitions: int, say: Callable[[str], None]
) -> dict[str, list[Run]]:
    """Measure each contender `repetitions` times, in turn, and repeat what other processes disturb. `say`: progress."""
    found: dict[str, list[Run]] = {name: [] for name in contenders}
    for number in range(repetitions):
        for name, contender in contenders.items():
            say(f"{name}: repetition {number + 1} of {repetitions}")
            found[name].append(quiet(contender, repetitions, lambda text, name=name: say(f"{name}: {text}")))  # type: ignore[misc]
    return found


def ratios(runs: Sequence[Run], reference: Sequence[Run]) -> Spread:
    """Ratio of the rates to the reference's, repetition by repetition."""
    return Spread.of([run.rate / other.rate for run, other in zip(runs, reference, strict=True)])


def rates(runs: Sequence[Run]) -> Spread:
    return Spread.of([run.rate for run in runs])


def claim(text: str, runs: Sequence[Run], *, held: bool) -> Claim:
    """A claim about these runs, which cannot hold if other processes disturbed them: they also evict the caches."""
    if (most := others(runs)) > QUIET_CORES:
        return Claim(f"{text}; disturbed: other processes took up to {most:.2f} cores", held=False)
    return Claim(text, held=held)


def others(runs: Sequence[Run]) -> float:
    """The most cores that other processes used during any of these runs."""
    return max(run.load.others_cores for run in runs)


def quiet(contender: Callable[[], Result], repetitions: int, say: Callable[[str], None]) -> Result:
    """Run once; repeat at most `AGAIN` times while other processes disturb it, and keep the least disturbed run.

    With a single repetition nothing is repeated: such a run only tries things out.
    """
    run = contender()
    for _ in range(AGAIN if repetitions > 1 else 0):
        if run.others_cores <= QUIET_CORES:
            break
        say(f"other processes took {run.others_cores:.2f} cores: repeating")
        run = min((run, contender()), key=lambda each: each.others_cores)
    return run
