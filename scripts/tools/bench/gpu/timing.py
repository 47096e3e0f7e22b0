"""Times a leg over a case: every shape is warmed up on every thread, then whole passes are timed."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tools.bench.gpu.cases import packed_batches
from tools.bench.gpu.checkpoints import SHAPES
from tools.bench.model.cases import in_order_of_arrival
from tools.bench.model.passes import Passes

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tools.bench.gpu.bench import Bench
    from tools.bench.gpu.cases import Case
    from tools.bench.model.legs import Leg

LEAST_PASSES = 3


@dataclass(frozen=True, slots=True)
class Timing:
    """Whole passes over all feeds. `cores` is the processor time of this process per second of them."""

    median_s: float
    slowest_over_fastest: float
    cores: float


def measure(bench: Bench, leg: Leg, shape: str, case: Case, batch_tokens: int, threads: int) -> None:
    """Add the row of one cell. Tokens and TFLOP/s count real tokens, not padding."""
    lengths = np.array(case.lengths_tokens)
    batching = in_order_of_arrival if leg.pads else packed_batches
    batches = batching(case.windows(SHAPES[shape].vocab_size), batch_tokens)
    padded = sum(len(batch) * max(window.length_tokens for window in batch) for batch in batches)
    timing = timed(leg.run, [leg.feeds(batch) for batch in batches], threads, bench.seconds(0.8))
    bench.add(
        leg=leg.name,
        shape=shape,
        case=case.name,
        batch_tokens=batch_tokens,
        threads=threads,
        windows_per_s=len(lengths) / timing.median_s,
        tokens_per_s=int(lengths.sum()) / timing.median_s,
        tflops=SHAPES[shape].flops(lengths) / timing.median_s / 1e12,
        padding=padded / int(lengths.sum()) if leg.pads else 1.0,
        slowest_over_fastest=timing.slowest_over_fastest,
        cores=timing.cores,
    )


def timed(run: Callable[[Any], Any], feeds: Sequence[Any], threads: int, least_s: float) -> Timing:
    """Blocks for at least `LEAST_PASSES` passes and `least_s`, after one that warms up."""
    with Passes(run, feeds, threads) as passes:
        passes.warm_up()
        began_s, done = time.perf_counter(), [passes.once()]
        while len(done) < LEAST_PASSES or time.perf_counter() - began_s < least_s:
            done.append(passes.once())
    seconds = [each.seconds for each in done]
    return Timing(
        statistics.median(seconds), max(seconds) / min(seconds), sum(each.cpu_s for each in done) / sum(seconds)
    )
