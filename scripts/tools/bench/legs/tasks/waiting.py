"""Padding and waits of two tasks with encoders of their own, simulated with the worker's own scheduler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tools.bench.simulator.report import CUT
from tools.bench.simulator.scenarios import CPU, OURS, Traffic, backlog, under_load
from tools.bench.simulator.statistics import Statistics

LOADS = (0.1, 0.5, 0.9)
MIXES = ("news", "headlines")
_SIMULATED_S, _QUICK_S = 200.0, 5.0
_QUICK_TOKENS = 20_000


@dataclass(frozen=True, slots=True)
class Simulated:
    """One mix with one or two passes: a backlog, and loads as shares of the rate at which that backlog was done."""

    mix: str
    passes: int
    backlog: Statistics
    loads: Mapping[float, Statistics]


def simulate(mixes: Mapping[str, Sequence[int]], *, quick: bool) -> list[Simulated]:
    """One and two passes on each mix; two CPU threads, and encoders of the same speed."""
    return [_simulate_setting(mix, mixes[mix], passes, quick=quick) for mix in MIXES for passes in (1, 2)]


def _simulate_setting(mix: str, tokens: Sequence[int], passes: int, *, quick: bool) -> Simulated:
    setting = replace(CPU, simulated_s=_SIMULATED_S, passes=passes)
    if quick:
        setting = replace(setting, simulated_s=_QUICK_S, backlog_tokens=_QUICK_TOKENS)
    done = backlog(setting, CUT, tokens, OURS)
    loads = {
        load: under_load(
            setting, Traffic(mix, CUT, "random", load), tokens, OURS, capacity_tokens_per_s=done.tokens_per_s
        )
        for load in LOADS
    }
    return Simulated(mix, passes, done, loads)
