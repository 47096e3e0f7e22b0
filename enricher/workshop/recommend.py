"""Measurements -> recommended settings. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from enricher.worker.inference.run.tuning import TuningRow

NEARLY_AS_FAST = 0.97
"""Two measurements of one cell differ by 3 %. Of all cells that are this close to the fastest, the one with the smallest
batch is taken: it returns sooner, and fills sooner under low load."""
LEAST_EDGE_TOKENS = 16


def recommend(measurements: Sequence[TuningRow], window_tokens: int) -> TuningRow:
    """The smallest batch, then the lowest concurrency, that is nearly the fastest on windows of the model's length."""
    usual = min((each.length_tokens for each in measurements), key=lambda length: abs(length - window_tokens))
    mine = [each for each in measurements if each.length_tokens == usual]
    best = max(each.tokens_per_s for each in mine)
    fast = [each for each in mine if each.tokens_per_s >= NEARLY_AS_FAST * best]
    return min(fast, key=lambda each: (each.batch_tokens, each.concurrency))


def why_not_fastest(measurements: Sequence[TuningRow], best: TuningRow) -> str | None:
    """Why the recommended row is not the fastest one of the table, in a sentence; None if it is."""
    fastest = max(measurements, key=lambda each: each.tokens_per_s)
    if best.tokens_per_s >= fastest.tokens_per_s:
        return None
    if fastest.length_tokens != best.length_tokens:
        return (
            f"The fastest row is on windows of {fastest.length_tokens} tokens; the advice is for windows of "
            f"{best.length_tokens}, into which long articles are cut."
        )
    lead = 100 * (fastest.tokens_per_s / best.tokens_per_s - 1)
    return (
        f"The fastest row, {fastest.batch_tokens} tokens and {fastest.concurrency} at once, is {lead:.1f} % faster, no more "
        f"than two measurements differ; {best.batch_tokens} tokens and {best.concurrency} at once return sooner."
    )


def overhead_tokens(measurements: Sequence[TuningRow], concurrency: int) -> int:
    """The fixed cost of a run, in tokens: the line of time over tokens is extended to where the time is zero.

    The line is a least-squares fit over batches of the shortest length. A negative cost counts as 0.
    """
    shortest = min(each.length_tokens for each in measurements)
    mine = [each for each in measurements if (each.concurrency, each.length_tokens) == (concurrency, shortest)]
    xs = [each.windows * shortest for each in mine]
    mean_x, mean_y = sum(xs) / len(xs), sum(each.batch_ms for each in mine) / len(mine)
    spread = sum((x - mean_x) ** 2 for x in xs)
    slope = sum((x - mean_x) * (each.batch_ms - mean_y) for x, each in zip(xs, mine, strict=True)) / (spread or 1.0)
    return max(0, round(mean_y / slope - mean_x)) if slope > 0 else 0


def bucket_edges(window_tokens: int, overhead: int) -> tuple[int, ...]:
    """Edges up to the longest window. On average a window is padded by half a step, and each bucket adds a run.

    Steps are 8 tokens if runs are cheap, else 16, to which some variants round anyway. Beyond 256 tokens, where a padded
    token is a smaller share, they are 32.
    """
    step = 8 if overhead < LEAST_EDGE_TOKENS // 2 else 16
    short = range(LEAST_EDGE_TOKENS, min(window_tokens, 256) + 1, step)
    return tuple(sorted({*short, *range(256 + 32, window_tokens + 1, 32), window_tokens}))
