"""Interleaved repetitions: contenders take turns, so that what else the machine does weighs on all of them alike.

A run during which other processes took more than `QUIET_CORES` is disturbed and done again, within a bound.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tools.bench.machine import Load

QUIET_CORES = 0.15
"""The machine's own housekeeping stays below; a browser or a compiler does not."""
AGAIN = 2
"""How often a disturbed run is repeated before it is taken as it is, and marked. Not where one repetition is all: then
nothing is to be measured, only tried."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one contender: how much it did per second, under which load, and what else is worth keeping."""

    rate: float
    load: Load
    detail: Mapping[str, Any] = field(default_factory=dict)

    @property
    def disturbed(self) -> bool:
        """True where other processes took part of the machine."""
        return self.load.others_cores > QUIET_CORES


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, lowest and highest of some repetitions."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of at least one value."""
        return cls(statistics.median(values), min(values), max(values))

    def as_dict(self) -> dict[str, float]:
        """For machines."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.median:.3g} ({self.low:.3g} to {self.high:.3g})"


def interleave(
    contenders: Mapping[str, Callable[[], Run]], repetitions: int, say: Callable[[str], None]
) -> dict[str, list[Run]]:
    """Run each contender `repetitions` times, in turn. `say` is told what runs now."""
    runs: dict[str, list[Run]] = {name: [] for name in contenders}
    for number in range(repetitions):
        for name, contender in contenders.items():
            say(f"{name}: repetition {number + 1} of {repetitions}")
            again = AGAIN if repetitions > 1 else 0
            runs[name].append(_quiet(contender, again, lambda text, name=name: say(f"{name}: {text}")))  # type: ignore[misc]
    return runs


def ratios(runs: Sequence[Run], reference: Sequence[Run]) -> Spread:
    """Rates over the reference's, repetition by repetition."""
    return Spread.of([run.rate / other.rate for run, other in zip(runs, reference, strict=True)])


def rates(runs: Sequence[Run]) -> Spread:
    """The rates themselves."""
    return Spread.of([run.rate for run in runs])


def others(runs: Sequence[Run]) -> float:
    """The most that other processes took during any of these runs, in cores."""
    return max(run.load.others_cores for run in runs)


def disturbed(runs: Sequence[Run]) -> str:
    """What to say where any of these runs was disturbed; empty where none was."""
    most = others(runs)
    return f"disturbed: other processes took up to {most:.2f} cores" if most > QUIET_CORES else ""


def _quiet(contender: Callable[[], Run], again: int, say: Callable[[str], None]) -> Run:
    run = contender()
    for _ in range(again):
        if not run.disturbed:
            break
        say(f"other processes took {run.load.others_cores:.2f} cores: once more")
        run = min((run, contender()), key=lambda each: each.load.others_cores)
    return run
