"""Adapts the budget of batches to the device's memory: lower after a batch did not fit, higher again step by step.

A batch that does not fit costs no window: the engine ran it in parts before it came here. So a step up that turns out to be
too large costs time only, and each such step doubles the time until the next.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from enricher.worker.loop.ports import Scheduler
from enricher.worker.records import BatchResult

FIRST_PAUSE_S = 60.0
"""How long no batch may have run out of memory before the budget rises by a step."""
LONGEST_PAUSE_S = 3600.0
"""The bound of that time after many steps that were too large: then a batch or two per hour is run in parts."""
STEP = 1.25
"""A step up, as a factor. Far below what did not fit, it is `FAR_STEP`."""
FAR_STEP = 2.0

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Lowered:
    """The state since a batch ran out of memory."""

    failed_tokens: int
    """The size of the last batch that did not fit."""
    since_s: float
    """When memory last ran out, or the budget rose."""
    pause_s: float
    """How long memory must have been enough before the next step up."""
    before_tokens: int | None = None
    """The budget before the last step up; None if memory ran out since then."""


class Budget:
    """The budget of batches. Nothing is remembered beyond the process: the next one starts with the configured budget."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._lowered: _Lowered | None = None

    def note(self, done: BatchResult, now_s: float) -> bool:
        """Adapt the budget; returns whether the batch was run in parts."""
        queue, known = self._scheduler, self._lowered
        if done.fits_tokens is None:
            if known is not None and now_s - known.since_s >= known.pause_s:
                _rise(queue, known, queue.tokens_of(done.batch), now_s)
            return False
        if len(done.batch.windows) == 1:  # no part is smaller, and no budget makes such a batch fit
            return False
        tokens = queue.tokens_of(done.batch)
        if known is None or now_s - known.since_s > LONGEST_PAUSE_S:
            known = self._lowered = _Lowered(tokens, now_s, FIRST_PAUSE_S)
        _lower(queue, known, tokens, done.fits_tokens, now_s)
        return True


def _lower(queue: Scheduler, known: _Lowered, tokens: int, fits_tokens: int, now_s: float) -> None:
    """Limit the budget to what fitted, or if the last step up was too large, to the budget before it."""
    known.since_s = now_s
    # Batches of an older, larger budget may still be under way, and they say nothing about the present one.
    if tokens > queue.max_batch_tokens:
        return
    known.failed_tokens = tokens
    if known.before_tokens is not None:
        known.pause_s = min(2 * known.pause_s, LONGEST_PAUSE_S)
        if known.before_tokens < tokens:
            fits_tokens = max(fits_tokens, known.before_tokens)
    known.before_tokens = None
    if fits_tokens < queue.max_batch_tokens:
        queue.limit_budget(fits_tokens)
        log.warning(
            "out of memory with a batch of %d tokens: batches have at most %d from now on (batching.max_batch_tokens), "
            "and more again after %.0f s without this",
            tokens,
            fits_tokens,
            known.pause_s,
        )


def _rise(queue: Scheduler, known: _Lowered, tokens: int, now_s: float) -> None:
    """Raise the budget a step, unless the batch of so many tokens that fitted was too small to show that more fits."""
    budget = queue.max_batch_tokens
    if 2 * tokens <= budget:
        return
    near, far = max(int(STEP * budget), budget + 1), min(int(FAR_STEP * budget), known.failed_tokens // 2)
    queue.limit_budget(max(near, far))
    if queue.max_batch_tokens == budget:
        return
    log.info(
        "memory was enough for %.0f s: batches have at most %d tokens from now on, instead of %d",
        now_s - known.since_s,
        queue.max_batch_tokens,
        budget,
    )
    if known.before_tokens is not None:
        known.pause_s = max(known.pause_s / 2, FIRST_PAUSE_S)
    known.since_s, known.before_tokens = now_s, budget
