"""Times a leg over a case: every shape is warmed up on every thread, then whole passes are timed."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from enricher.records import Window
    from tools.bench.gpu.checkpoints import Shape
    from tools.bench.gpu.legs import Leg


@dataclass(frozen=True, slots=True)
class Figure:
    """One leg over one case. Tokens and TFLOP/s count real tokens only, not padding."""

    shape: str
    case: str
    leg: str
    batch_tokens: int
    concurrency: int
    windows_per_s: float
    tokens_per_s: float
    tflops: float
    slowest_over_fastest: float
    """The slowest pass over the fastest: how steady the machine was."""


@dataclass(frozen=True, slots=True)
class Plan:
    """How a leg is run: tokens per batch, concurrency, and the number of timed passes."""

    batch_tokens: int
    concurrency: int
    passes: int


def measure(leg: Leg, windows: Sequence[Window], plan: Plan, names: tuple[str, str], shape: Shape) -> Figure:
    """`names` are the names of the shape and the case. Blocks for `plan.passes` + 1 passes."""
    seconds = _passes(leg, [leg.feeds(batch) for batch in leg.batching(windows, plan.batch_tokens)], plan)
    lengths = np.array([window.length_tokens for window in windows])
    typical_s = statistics.median(seconds)
    return Figure(
        shape=names[0],
        case=names[1],
        leg=leg.name,
        batch_tokens=plan.batch_tokens,
        concurrency=plan.concurrency,
        windows_per_s=len(windows) / typical_s,
        tokens_per_s=int(lengths.sum()) / typical_s,
        tflops=shape.flops(lengths) / typical_s / 1e12,
        slowest_over_fastest=max(seconds) / min(seconds),
    )


def _passes(leg: Leg, feeds: list[Any], plan: Plan) -> list[float]:
    together = Barrier(plan.concurrency)

    def warm(_: int) -> None:
        """CuDNN keeps a plan per thread and shape. The barrier makes every thread run once."""
        together.wait()
        for each in feeds:
            leg.run(each)

    with ThreadPoolExecutor(plan.concurrency) as pool:
        list(pool.map(warm, range(plan.concurrency)))
        return [_timed(pool, leg, feeds) for _ in range(plan.passes)]


def _timed(pool: ThreadPoolExecutor, leg: Leg, feeds: list[Any]) -> float:
    began_s = time.perf_counter()
    list(pool.map(leg.run, feeds))
    return time.perf_counter() - began_s
