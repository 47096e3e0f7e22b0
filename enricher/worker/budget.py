"""Makes batches smaller after one ran out of device memory and had to be run in parts."""

from __future__ import annotations

import logging

from enricher.records import BatchResult
from enricher.worker.ports import Scheduler

log = logging.getLogger(__name__)


class Budget:
    """Lowers the budget of a pass. It is never raised again; the next process starts with the full one."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._fits_tokens: dict[int, int] = {}

    def note(self, done: BatchResult) -> bool:
        """Whether this batch ran out of memory.

        If so, later batches of its pass are no larger than the largest part that fit.
        """
        if done.fits_tokens is None:
            return False
        index = done.batch.pass_index
        # Several threads may run out of memory in the same turn.
        if index not in self._fits_tokens or done.fits_tokens < self._fits_tokens[index]:
            self._fits_tokens[index] = done.fits_tokens
            self._scheduler.of_pass(index).lower_budget(done.fits_tokens)
            log.warning(
                "out of memory with a batch of %d tokens: batches have at most %d from now on (batching.max_batch_tokens)",
                done.batch.padded_tokens,
                done.fits_tokens,
            )
        return True
