"""Lowers the budget of batches after one did not fit into the device's memory.

Such a batch costs no window: the engine ran it in parts before it came here. The budget never rises again: a restart begins
with the configured one, and the metric of the budget shows that it is lower.
"""

from __future__ import annotations

import logging

from enricher.worker.loop.ports import Scheduler
from enricher.worker.records import BatchResult

log = logging.getLogger(__name__)


class Budget:
    """The budget of batches in `scheduler`."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def note(self, done: BatchResult) -> bool:
        """Lower the budget to what fitted, but by half at most; returns whether the batch was run in parts.

        A neighbour that took the memory for a moment must not leave tiny batches until a restart; what is still too large
        comes back and is halved again.
        """
        fits_tokens = done.fits_tokens
        # A single window has no smaller part, and no budget makes such a batch fit.
        if fits_tokens is None or len(done.batch.windows) == 1:
            return False
        queue = self._scheduler
        tokens = queue.tokens_of(done.batch)
        # Batches of an older, larger budget may still be under way, and they say nothing about the present one. Nor does a
        # batch with a window that fails even alone, or a few such articles would make all batches small.
        if fits_tokens < queue.max_batch_tokens and tokens <= queue.max_batch_tokens and not done.failures:
            fits_tokens = max(fits_tokens, queue.max_batch_tokens // 2)
            queue.limit_budget(fits_tokens)
            log.warning(
                "out of memory with a batch of %d tokens: batches have at most %d from now on (batching.max_batch_tokens), "
                "until a restart",
                tokens,
                fits_tokens,
            )
        return True
