"""Measurements -> recommended settings. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from enricher.commands.model.tune.sweep import Cell, Measurement
from enricher.inference.run.tuning import TuningRow

NEARLY_AS_FAST = 0.97
"""Of all settings within 3 % of the best, which is what two measurements of one cell differ by, the smallest batch is taken:
it is back sooner, and fills sooner when there is little to do."""
LEAST_EDGE_TOKENS = 16


def rows_of(measurements: Sequence[Measurement]) -> tuple[TuningRow, ...]:
    """As the file has them."""
    return tuple(
        TuningRow(
            concurrency=each.cell.concurrency,
            length_tokens=each.cell.length_tokens,
            batch_tokens=each.cell.batch_tokens,
            windows=each.cell.windows,
            tokens_per_s=each.tokens_per_s,
            batch_ms=each.batch_ms,
        )
        for each in measurements
    )


def recommended(measurements: Sequence[Measurement], window_tokens: int) -> Cell:
    """The smallest batch, and then the least concurrency, nearly as fast as the fastest on windows of the model's length."""
    lengths = {each.cell.length_tokens for each in measurements}
    usual = min(lengths, key=lambda length: abs(length - window_tokens))
    mine = [each for each in measurements if each.cell.length_tokens == usual]
    best = max(each.tokens_per_s for each in mine)
    fast = [each.cell for each in mine if each.tokens_per_s >= NEARLY_AS_FAST * best]
    return min(fast, key=lambda cell: (cell.batch_tokens, cell.concurrency))


def overhead_tokens(measurements: Sequence[Measurement], concurrency: int) -> int:
    """What a run costs before its first token, in tokens: time over tokens is a line, and this is where it meets zero.

    Least squares over batches of the shortest length; 0 where the line says less than nothing.
    """
    shortest = min(each.cell.length_tokens for each in measurements)
    mine = [
        each for each in measurements if (each.cell.concurrency, each.cell.length_tokens) == (concurrency, shortest)
    ]
    xs = [each.cell.windows * shortest for each in mine]
    mean_x, mean_y = sum(xs) / len(xs), sum(each.batch_ms for each in mine) / len(mine)
    spread = sum((x - mean_x) ** 2 for x in xs)
    slope = sum((x - mean_x) * (each.batch_ms - mean_y) for x, each in zip(xs, mine, strict=True)) / (spread or 1.0)
    return max(0, round(mean_y / slope - mean_x)) if slope > 0 else 0


def bucket_edges(window_tokens: int, overhead: int) -> tuple[int, ...]:
    """Edges up to the longest window: a window pays half a step in padding, and a further bucket is one more run.

    Steps of 8 tokens where runs are cheap, else of 16, which some variants round to anyway; of 32 beyond 256 tokens, where a
    token of padding is a smaller share.
    """
    step = 8 if overhead < LEAST_EDGE_TOKENS // 2 else 16
    short = range(LEAST_EDGE_TOKENS, min(window_tokens, 256) + 1, step)
    long = range(256 + 32, window_tokens + 1, 32)
    edges = [*short, *long]
    return tuple(edges if edges and edges[-1] == window_tokens else [*edges, window_tokens])
