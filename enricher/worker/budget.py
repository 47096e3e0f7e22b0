"""Keeps batches within what the device's memory took: one that ran out of it came back in parts, and was a warning."""

from __future__ import annotations

import logging

from enricher.records import BatchResult
from enricher.worker.ports import Scheduler

log = logging.getLogger(__name__)


class Budget:
    """Lowers the scheduler's budget; never raises it again: the next process may try."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._fits_tokens: float = float("inf")

    def note(self, done: BatchResult) -> bool:
        """Whether this batch ran out of memory. Then no later one is made larger than what did fit."""
        if done.fits_tokens is None:
            return False
        if done.fits_tokens < self._fits_tokens:  # other threads may have run out in the same step
            self._fits_tokens = done.fits_tokens
            self._scheduler.lower_budget(done.fits_tokens)
            log.warning(
                "out of memory with %d tokens at once: batches have %d at most from now on (batching.max_batch_tokens)",
                done.batch.padded_tokens,
                done.fits_tokens,
            )
        return True
