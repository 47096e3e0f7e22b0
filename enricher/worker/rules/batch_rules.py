"""BatchRules: what a batch may be, and when an idle thread gets one early; for batching.py and packing.py alike."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from enricher.worker.rules.load import share_at_load

EARLY_POWER = 4
"""How steeply the cost of early batches falls with the load. In simulations, for the same cost at half load, results are
fresher at a quarter of it than with 2 or 3."""


@dataclass(frozen=True, slots=True)
class BatchRules:
    """The bounds of a batch.

    `bucket_edges`: the longest window of each bucket, increasing; longer windows go into the last bucket.
    `max_batch_tokens`: padded tokens of a batch; only a single window that is longer exceeds it.
    `max_wait_s`: how long a window may wait for others to share a batch with.
    `run_overhead_tokens`: the fixed cost of a run, in tokens that could be computed in that time. A batch includes windows
    of other lengths while padding them costs less than their share of a later run.
    `early_overhead`: how large the fixed cost of an early batch may be at half load, as a share of its tokens; it is
    scaled to the load (`load.scaled`). 0: no batch goes early.
    """

    bucket_edges: tuple[int, ...]
    max_batch_tokens: int
    max_wait_s: float
    run_overhead_tokens: int
    early_overhead: float = 0.0

    def __post_init__(self) -> None:
        assert self.bucket_edges, "at least one bucket"
        assert list(self.bucket_edges) == sorted(set(self.bucket_edges)), "edges increase"

    def early_tokens(self, queued_tokens: int, idle_threads: int, load: float) -> int | None:
        """The most tokens of an early batch; None if no batch may go early. `load`: how busy the worker is, 0 to 1.

        What waits is divided among the idle threads, as far as each part is worth a run. Undivided, it may fill a batch:
        otherwise its padding would leave some of it behind.
        """
        allowed = (
            share_at_load(self.early_overhead, load, EARLY_POWER) if self.early_overhead and idle_threads > 0 else 0.0
        )
        if not allowed or queued_tokens < (least := self.run_overhead_tokens / allowed):
            return None
        parts = min(idle_threads, int(queued_tokens / max(least, 1)))
        return ceil(queued_tokens / parts) if parts > 1 else self.max_batch_tokens
