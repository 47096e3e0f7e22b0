"""Interleaved repetitions: contenders take turns, so that background load affects all of them equally.

A run during which other processes used more than `QUIET_CORES` is disturbed; it is repeated, at most `AGAIN` times.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from tools.bench.machine import Load
from tools.bench.outcome import Claim

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

    @property
    def disturbed(self) -> bool:
        """Whether other processes used more than `QUIET_CORES`."""
        return self.others_cores > QUIET_CORES


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
    disturbance = disturbed(runs)
    return Claim(f"{text}; {disturbance}", held=False) if disturbance else Claim(text, held=held)


def others(runs: Sequence[Run]) -> float:
    """The most cores that other processes used during any of these runs."""
    return max(run.load.others_cores for run in runs)


def disturbed(runs: Sequence[Run]) -> str:
    """A remark if any of these runs was disturbed; otherwise empty."""
    most = others(runs)
    return f"disturbed: other processes took up to {most:.2f} cores" if most > QUIET_CORES else ""


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
