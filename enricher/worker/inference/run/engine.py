"""Batches of windows -> labels and scores, on one session that all threads share.

A batch that fails is run again window by window, so that a bad window costs only its own article; a batch that runs out of
memory is run in halves. No error of ONNX Runtime leaves this file. The variant makes the arrays; the worker pool
owns the threads.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import repeat
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from enricher.errors import ModelError
from enricher.worker.heads import HeadSpec, reads_of
from enricher.worker.inference.device.sessions import SESSION_ERRORS, Feeds
from enricher.worker.inference.run.model import PreparedModel
from enricher.worker.records import (
    Batch,
    BatchResult,
    HeadOutput,
    Partition,
    RawRecord,
    RunOutput,
    Ticket,
    TokenLabels,
    Window,
    WindowFailure,
    WindowRows,
)

MESSAGE_CHARS = 300
"""ONNX Runtime's messages begin with operators and shapes; the rest of a long one is its call stack."""
SHORT_TOKENS = 8
"""The length of a window for checks for which any window will do."""
LONG_TOKENS = 512
"""The longest warm-up window if the caller gives no lengths; longer windows are rare in news."""
LOG_EVERY_S = 2.0
"""How often the progress of a long warm-up is logged."""

_REAL_TOKENS, _PADDED_TOKENS = attrgetter("real_tokens"), attrgetter("padded_tokens")

_log = logging.getLogger(__name__)


class InvalidWindow(ValueError):
    """A window that the model cannot take. Some providers do not notice, and read past the end of a table."""


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
        """The first head's card; `cards` has the cards of all heads."""
        self.cards = model.cards
        self.provider = model.provider
        """One of ONNX Runtime's execution providers, or OpenVINO."""

    def run(self, batch: Batch) -> BatchResult:
        """The answers of the heads for all windows except those that fail.

        Raises ModelError if the device cannot run anything any more.
        """
        with self._turns.share():
            result = self._run_in_halves(batch)
        if result.failures:
            result = self._run_failed_alone(result)
            if any(map(_was_raised, result.failures)):
                self._require_device()
        return result

    def padded_tokens(self, batch: Batch) -> int:
        """The tokens that the device computes for a batch in this variant. Never blocks."""
        return self._variant.padded_tokens(batch.windows)

    def warm_up(self, lengths_tokens: Sequence[int] = (), *, batch_tokens: int = 0) -> None:
        """Run each length, alone and in full batches, so that no article waits for work that is done once.

        Without lengths, and on ONNX Runtime's CPU provider, which does no work per shape, run one long and one short window.
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
        """Run one window again; if memory ran out, alone on the device, so that only this window can be the cause."""
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
        """Raise ModelError unless a window of padding runs; if it runs, the failures were caused by their windows."""
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


NOT_FINITE = "NotFinite"
"""The `error_type` of a window for which a head gives NaN or infinite numbers. Other types are names of exceptions, or
OUT_OF_MEMORY."""


def output_names(heads: Sequence[HeadSpec]) -> list[str]:
    """The outputs that a run of a graph with these heads needs: two for each `ner`, one for each other."""
    if len(heads) == 1 and _type_of(heads[0]) is TokenLabels:
        return [*TokenLabels.names]
    return [f"head.{index}.{name}" for index, head in enumerate(heads) for name in _type_of(head).names]


def answers_of(outputs: Sequence[npt.NDArray[Any]], heads: Sequence[HeadSpec]) -> list[HeadOutput]:
    """The answers of each head, from the outputs that `output_names` names."""
    arrays = iter(outputs)
    return [_type_of(head).of(arrays) for head in heads]


def _type_of(head: HeadSpec) -> type[HeadOutput]:
    return TokenLabels if head.reads == "tokens" else WindowRows


def fail_non_finite(batch: Batch, run: RunOutput, models: Sequence[str]) -> BatchResult:
    """The result of a run; a head fails on the windows for which it gives a number that is not finite.

    Windows are searched only if there is such a number, which may also be at padding. `models`: the name of each head's
    model, for messages.
    """
    if all(np.isfinite(head.numbers).all() for head in run.heads):
        return BatchResult(batch, [run])
    good, failures = list[int](), list[WindowFailure]()
    for index, (window, start) in enumerate(zip(run.windows, run.starts, strict=True)):
        parts = (head.numbers_about(window, index, start) for head in run.heads)
        failed = [number for number, part in enumerate(parts) if not np.isfinite(part).all()]
        if failed:
            by = f" (of {', '.join(models[number] for number in failed)})" if len(models) > 1 else ""
            message = f"the model's scores for this window are NaN or infinite{by}"
            failures.append(WindowFailure(window, NOT_FINITE, message, failed))
        if len(failed) < len(models):
            good.append(index)
    return BatchResult(batch, [select(run, good)] if good else [], failures)


def leave_out(runs: Iterable[RunOutput], windows: Iterable[Window]) -> list[RunOutput]:
    """The runs without their answers for these windows."""
    left_out = {id(window) for window in windows}
    kept = [(run, [i for i, window in enumerate(run.windows) if id(window) not in left_out]) for run in runs]
    return [select(run, indices) for run, indices in kept if indices]


def select(run: RunOutput, indices: Sequence[int]) -> RunOutput:
    """The answers of a run for some of its windows."""
    if len(indices) == len(run.windows):
        return run
    heads = [head.select(indices) for head in run.heads]
    return RunOutput([run.windows[index] for index in indices], [run.starts[index] for index in indices], heads)


OUT_OF_MEMORY = "OutOfMemory"
"""The `error_type` of a window that did not fit into memory, whatever the provider raised."""

Attempt = Callable[[Batch], BatchResult]
"""One run of the device. If memory runs out, all windows fail."""

_TEXTS = (
    "failed to allocate",  # BFCArena (CPU and CUDA): "Failed to allocate memory for requested buffer of size"; OpenVINO
    "is smaller than requested bytes",  # BFCArena at the limit of its arena
    "out of memory",  # "CUDA failure 2: out of memory"
    "out_of_memory",  # oneDNN
    "can't alloc",  # OpenVINO, in the middle of a graph
    "cudaerrormemoryallocation",
    "cublas failure 1:",  # CUBLAS_STATUS_NOT_INITIALIZED: there was no memory for a handle
    "not_initialized",  # the same by name; CUDNN_STATUS_NOT_INITIALIZED
    "cublas failure 3:",  # CUBLAS_STATUS_ALLOC_FAILED, in words: "the resource allocation failed"
    "alloc_failed",  # the same by name; CUDNN_STATUS_ALLOC_FAILED
    "allocation_failed",  # CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED
    "bad_alloc",  # C++ on Linux and macOS
    "bad allocation",  # C++ on Windows
)
"""No error class means out of memory: Fail, RuntimeException and EPFail are raised for it, so only the text tells."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the device or the machine lacks memory, so that a smaller batch may succeed."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(known in text for known in _TEXTS)


def ran_out(failure: WindowFailure) -> bool:
    """Whether a window failed because memory ran out."""
    return failure.error_type == OUT_OF_MEMORY


def run_in_halves(attempt: Attempt, batch: Batch, tokens_of: Callable[[Batch], int]) -> BatchResult:
    """Run all windows at once; if memory runs out, run parts half as large, until a part fits or is a single window.

    The result's `fits_tokens` counts the tokens of the largest part that fitted, by `tokens_of`. It is None if all windows
    fitted at once, and the shortest window's length if no window fitted.
    """
    windows = batch.windows
    done, part, fits_tokens = 0, len(windows), 0
    answered: list[BatchResult] = []
    while done < len(windows):
        taken = batch if part == len(windows) else Batch(windows[done : done + part])
        answer = attempt(taken)
        if not any(map(ran_out, answer.failures)):
            fits_tokens = max(fits_tokens, tokens_of(taken))
        elif len(taken.windows) > 1:
            part = (len(taken.windows) + 1) // 2
            continue
        answered.append(answer)
        done += len(taken.windows)
    if fits_tokens and part == len(windows):
        return answered[0]
    return join_parts(batch, answered, fits_tokens or min(window.length_tokens for window in windows))


def join_parts(batch: Batch, parts: Iterable[BatchResult], fits_tokens: int | None) -> BatchResult:
    """The results of parts of a batch as one result."""
    runs, failures = list[RunOutput](), list[WindowFailure]()
    for part in parts:
        runs += part.runs
        failures += part.failures
    return BatchResult(batch, runs, failures, fits_tokens)


class Turns:
    """A shared-exclusive lock: runs share the device, and some need it to themselves.

    Waiting has no timeout: it ends with the runs that it waits for, which the worker's watchdog limits.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0
        self._alone = 0

    @contextmanager
    def share(self) -> Iterator[None]:
        """Run while others run. Blocks while a thread has the device alone, or waits to have it alone."""
        with self._changed:
            self._changed.wait_for(lambda: not self._alone)
            self._running += 1
        try:
            yield
        finally:
            self._leave(alone=0)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Run alone. Blocks until the runs in progress have ended; later runs wait."""
        with self._changed:
            self._alone += 1
            self._changed.wait_for(lambda: not self._running)
            self._running += 1
        try:
            yield
        finally:
            self._leave(alone=1)

    def _leave(self, *, alone: int) -> None:
        with self._changed:
            self._running -= 1
            self._alone -= alone
            self._changed.notify_all()
