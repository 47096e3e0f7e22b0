"""Out of memory: how it looks in what ONNX Runtime raises, and how a batch gets through all the same, in halves.

Knows windows and their answers, not sessions: what runs them is handed in.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from enricher.records import Batch, BatchResult, RunLabels, WindowFailure

OUT_OF_MEMORY = "OutOfMemory"
"""The `error_type` of a window for which there was no memory, whatever the provider raised."""

Attempt = Callable[[Batch], BatchResult]
"""One run of the device. Where memory runs out, all windows failed."""

_TEXTS = (
    "failed to allocate",  # BFCArena (CPU and CUDA): "Failed to allocate memory for requested buffer of size"; OpenVINO
    "is smaller than requested bytes",  # BFCArena at the limit of its arena
    "out of memory",  # "CUDA failure 2: out of memory"
    "out_of_memory",  # oneDNN
    "can't alloc",  # OpenVINO, in the middle of a graph
    "cudaerrormemoryallocation",
    "cublas failure 3:",  # CUBLAS_STATUS_ALLOC_FAILED, as it is told in words: "the resource allocation failed"
    "alloc_failed",  # the same by name; CUDNN_STATUS_ALLOC_FAILED
    "allocation_failed",  # CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED
    "bad_alloc",  # C++ on Linux and macOS
    "bad allocation",  # C++ on Windows
)
"""There is no error of its own for it: Fail, RuntimeException and EPFail come, and only the text tells."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this is a lack of memory, of the device or of the machine: less work at once may then succeed."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(known in text for known in _TEXTS)


def ran_out(failure: WindowFailure) -> bool:
    """Whether a window has no answer for want of memory."""
    return failure.error_type == OUT_OF_MEMORY


def in_halves(attempt: Attempt, batch: Batch) -> BatchResult:
    """Run the windows at once, or where memory runs out, in parts half as large, until a part fits or is one window.

    `fits_tokens` of what it gives are the padded tokens of the largest part that fitted: None where all fitted at once or
    there was only one window. Where not even single windows fit it is the shortest one's length: smaller batches there
    are not.
    """
    windows = batch.windows
    done, part, fits_tokens = 0, len(windows), 0
    answered: list[BatchResult] = []
    while done < len(windows):
        taken = batch if part == len(windows) else Batch(windows[done : done + part])
        answer = attempt(taken)
        if not any(map(ran_out, answer.failures)):
            fits_tokens = max(fits_tokens, taken.padded_tokens)
        elif len(taken.windows) > 1:
            part = (len(taken.windows) + 1) // 2
            continue
        answered.append(answer)
        done += len(taken.windows)
    if part == len(windows):
        return answered[0]
    return joined(batch, answered, fits_tokens or min(window.length_tokens for window in windows))


def joined(batch: Batch, parts: Iterable[BatchResult], fits_tokens: int | None) -> BatchResult:
    """The answers to parts of a batch as the batch's."""
    runs, failures = list[RunLabels](), list[WindowFailure]()
    for part in parts:
        runs += part.runs
        failures += part.failures
    return BatchResult(batch, runs, failures, fits_tokens)


class Turns:
    """Runs that go on side by side, and now and then one that has the device to itself.

    Waits here end with the runs that they wait for; how long those may take is the loop's to judge.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0
        self._alone = 0

    @contextmanager
    def shared(self) -> Iterator[None]:
        """Beside others. Blocks while somebody has or wants the device alone."""
        with self._changed:
            self._changed.wait_for(lambda: not self._alone)
            self._running += 1
        try:
            yield
        finally:
            self._leave(alone=0)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """With nobody beside. Blocks until the runs under way have ended; those that come later wait."""
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
