"""Lets legs take turns, a pass each: other work on the machine then affects all of them equally."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial

from tools.bench.machine import Load, machine_cpu_s
from tools.bench.model.cases import Batches
from tools.bench.model.legs import Leg
from tools.bench.model.passes import Passes
from tools.bench.repeating import Run, in_turns


def take_turns(
    legs: Mapping[str, tuple[Leg, Batches]], repetitions: int, say: Callable[[str], None]
) -> dict[str, list[Run]]:
    """Passes of each leg over its batches, after one that warms it up. Rates are windows per second."""
    with ExitStack() as closing:
        contenders = {}
        for name, (leg, batches) in legs.items():
            passes = closing.enter_context(leg.passes(batches))
            passes.once()
            contenders[name] = partial(_run, passes, sum(map(len, batches)))
        return in_turns(contenders, repetitions, say)


def cpu_s(run: Run) -> float:
    """Processor time of a pass."""
    return run.load.own_cores * run.load.seconds


def _run(passes: Passes, windows: int) -> Run:
    busy_s = machine_cpu_s()
    done = passes.once()
    others_s = max(0.0, machine_cpu_s() - busy_s - done.cpu_s)
    load = Load(done.seconds, done.cpu_s / done.seconds, broker_cores=0.0, others_cores=others_s / done.seconds)
    return Run(windows / done.seconds, load)
