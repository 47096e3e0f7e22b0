"""Batches of windows -> labels and scores, on one session that all threads share.

A batch that fails is run again window by window, so that a bad window costs only its own article; a batch that runs out of
memory is run in halves (memory.py). No error of ONNX Runtime leaves this file. The variant makes the arrays; the worker pool
owns the threads.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np

from enricher.errors import ModelError
from enricher.worker.heads import reads_of
from enricher.worker.inference.device.session import SESSION_ERRORS
from enricher.worker.inference.run.head_outputs import NOT_FINITE, answers_of, fail_non_finite, leave_out, output_names
from enricher.worker.inference.run.memory import (
    OUT_OF_MEMORY,
    Turns,
    is_out_of_memory,
    join_parts,
    ran_out,
    run_in_halves,
)
from enricher.worker.records import (
    Batch,
    BatchResult,
    Partition,
    RawRecord,
    RunOutput,
    Ticket,
    Window,
    WindowFailure,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enricher.worker.inference.device.session import Feeds
    from enricher.worker.inference.run.model import PreparedModel

MESSAGE_CHARS = 300
"""ONNX Runtime's messages begin with operators and shapes; the rest of a long one is its call stack."""
SHORT_TOKENS = 8
"""The length of a window for checks that any window can do."""
LONG_TOKENS = 512
"""The longest warm-up window if the caller gives no lengths; longer windows are rare in news."""
LOG_EVERY_S = 2.0
"""How often the progress of a long warm-up is logged."""

_REAL_TOKENS, _PADDED_TOKENS = attrgetter("real_tokens"), attrgetter("padded_tokens")

_log = logging.getLogger(__name__)


class InvalidWindow(ValueError):
    """A window that the model cannot take. Not every provider notices: some read past the end of a table."""


_FAILURES: tuple[type[Exception], ...] = (*SESSION_ERRORS, InvalidWindow)


class OnnxEngine:
    """Runs batches. Up to `concurrency` threads may call `run` at once; each call blocks for the length of a run.

    `threads_per_run` is 1 on a CPU, because as many runs as cores, with one thread each, are faster and steadier than one
    run over all cores. `pad_id` fills up short windows; any id of the vocabulary will do.
    """

    def __init__(self, model: PreparedModel, *, threads_per_run: int, pad_id: int, concurrency: int = 1) -> None:
        self._variant = model.variant
        self._pad_id = pad_id
        self._turns = Turns()
        self._concurrency = concurrency
        self._max_window_tokens = model.checkpoint.max_window_tokens
        self._vocabulary = getattr(model.checkpoint.config, "vocab_size", None)
        self._session = model.open_session(threads_per_run=threads_per_run, concurrency=concurrency)
        self._heads = [each.head for each in model.checkpoints]
        self._models = [card.name for card in model.cards]
        self._reads, self._outputs = reads_of(self._heads), output_names(self._heads)
        self.labels = model.checkpoint.labels
        """Label names by id."""
        self.card = model.card
        """The first head's card; `cards` has those of all heads."""
        self.cards = model.cards
        self.provider = model.provider
        """One of ONNX Runtime's execution providers, or OpenVINO."""

    def run(self, batch: Batch) -> BatchResult:
        """The answers of the heads for all windows except those that fail.

        Raises ModelError if the device cannot run anything any more.
        """
        began_s = time.monotonic()
        with self._turns.share():
            result = self._run_in_halves(batch)
        if result.failures:
            result = self._run_failed_alone(result)
            if any(map(_was_raised, result.failures)):
                self._require_device()
        return replace(result, busy_s=time.monotonic() - began_s)

    def padded_tokens(self, batch: Batch) -> int:
        """The tokens that the device computes for a batch in this variant. Never blocks."""
        return self._variant.padded_tokens(batch.windows)

    def warm_up(self, lengths_tokens: Sequence[int] = (), *, batch_tokens: int = 0) -> None:
        """Run each length, alone and in full batches, so that no article waits for first-time work.

        Without lengths, and on ONNX Runtime's CPU provider, which does no work per shape: one long and one short window.
        Blocks. Raises ModelError if the model fails.
        """
        batches = self._shapes(lengths_tokens, batch_tokens)
        began_s = logged_s = time.monotonic()
        # One pool for all batches: on CUDA, ONNX Runtime makes a stream and handles of cuBLAS and cuDNN for each thread, and
        # destroys them when the thread is gone.
        with ThreadPoolExecutor(self._concurrency) as pool:
            for done, batch in enumerate(batches, 1):
                self._run_on_every_thread(pool, batch)
                if time.monotonic() - logged_s > LOG_EVERY_S:
                    logged_s = time.monotonic()
                    _log.info("warming up: %d of %d shapes, %.0f s", done, len(batches), logged_s - began_s)

    def open_thread(self) -> None:
        """Run a window of padding in the calling thread, to create what ONNX Runtime keeps per thread.

        On CUDA that is a stream, and handles of cuBLAS and cuDNN. Never raises: if the device fails, the first batch fails.
        """
        with self._turns.share():
            self._attempt(self._padding(SHORT_TOKENS))

    def _shapes(self, lengths_tokens: Sequence[int], batch_tokens: int) -> list[Batch]:
        """Batches of padding for the warm-up, the largest first, because the largest determines how much memory is taken."""
        longest = min(max(lengths_tokens, default=LONG_TOKENS), self._max_window_tokens)
        if not lengths_tokens or self._variant.runtime == "cpu":
            return [self._padding(length) for length in (longest, SHORT_TOKENS)]
        lengths = sorted({*lengths_tokens, SHORT_TOKENS}, reverse=True)
        rows = {length: {1, max(1, batch_tokens // length)} for length in lengths}
        return [self._padding(length, count) for length in lengths for count in sorted(rows[length], reverse=True)]

    def _run_on_every_thread(self, pool: ThreadPoolExecutor, batch: Batch) -> None:
        for result in pool.map(self._run_in_halves, repeat(batch, self._concurrency)):
            if result.failures:
                failure = f"{result.failures[0].error_type}: {result.failures[0].message}"
                raise ModelError(f"the model fails on a window of padding: {failure}")
            if result.fits_tokens is not None:
                asked, fits = len(batch.windows), result.fits_tokens
                _log.warning("out of memory: a batch of %d windows does not fit, one of %d tokens does", asked, fits)

    def _run_in_halves(self, batch: Batch) -> BatchResult:
        """One run, or several if memory runs out; `fits_tokens` counts what the scheduler's budget counts."""
        return run_in_halves(self._attempt, batch, _REAL_TOKENS if self._variant.packs else _PADDED_TOKENS)

    def _run_failed_alone(self, result: BatchResult) -> BatchResult:
        """Run each failed window alone. A batch of one window would fail again, unless memory had run out."""
        batch, failures = result.batch, result.failures
        if len(batch.windows) == 1 and not ran_out(failures[0]):
            return result
        runs = leave_out(result.runs, (failure.window for failure in failures))
        return join_parts(batch, [BatchResult(batch, runs), *map(self._run_alone, failures)], result.fits_tokens)

    def _run_alone(self, failure: WindowFailure) -> BatchResult:
        """Run one window again; if memory had run out, with no other run at the same time, so that it alone is to blame."""
        with self._turns.alone() if ran_out(failure) else self._turns.share():
            return self._attempt(Batch((failure.window,)))

    def _attempt(self, batch: Batch) -> BatchResult:
        """One run of the device. If it raises, all windows failed."""
        windows = batch.windows
        try:
            feeds = self._feeds(windows)
            outputs = self._session.run(self._outputs, feeds)
        except _FAILURES as error:
            kind = OUT_OF_MEMORY if is_out_of_memory(error) else type(error).__name__
            return BatchResult(
                batch, [], [WindowFailure(window, kind, str(error)[:MESSAGE_CHARS]) for window in windows]
            )
        starts = self._variant.starts(windows, feeds["input_ids"].shape)
        return fail_non_finite(batch, RunOutput(windows, starts, answers_of(outputs, self._heads)), self._models)

    def _feeds(self, windows: Sequence[Window]) -> Feeds:
        feeds = self._variant.feeds(windows, self._pad_id, self._reads)
        longest, ids = max(window.length_tokens for window in windows), feeds["input_ids"]
        if longest > self._max_window_tokens:
            message = f"{longest} tokens, and the model takes {self._max_window_tokens}"
            raise InvalidWindow(message)
        if self._vocabulary is not None and not 0 <= ids.min() <= ids.max() < self._vocabulary:
            message = f"a token id is outside the vocabulary of {self._vocabulary}"
            raise InvalidWindow(message)
        return feeds

    def _require_device(self) -> None:
        """Raise ModelError unless a window of padding runs: if it does, the failures were caused by their windows."""
        with self._turns.alone():
            result = self._attempt(self._padding(SHORT_TOKENS))
        for each in filter(_was_raised, result.failures):
            raise ModelError(f"the device does not run the model any more: {each.error_type}: {each.message}")

    def _padding(self, length_tokens: int, count: int = 1) -> Batch:
        """A batch of windows of padding, which belong to no article."""
        ticket = Ticket(RawRecord(Partition("", 0), 0, None, None), arrived_s=0.0)
        ids = np.full(length_tokens, self._pad_id, np.int32)
        return Batch((Window(ticket, ids, start=0, own_start=0, own_stop=0, specials_before=0, arrived_s=0.0),) * count)


def _was_raised(failure: WindowFailure) -> bool:
    return failure.error_type != NOT_FINITE
