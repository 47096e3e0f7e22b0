"""Out of memory: recognises it in what ONNX Runtime raises, and runs such a batch in halves.

Knows windows and results, not sessions: the caller passes a function that runs a batch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from enricher.worker.records import Batch, BatchResult, RunOutput, WindowFailure

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

    Waiting has no timeout: it ends with the runs that it waits for, and the worker's watchdog limits those.
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
