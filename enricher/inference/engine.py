"""Batches of windows -> labels and scores, on one ONNX Runtime session that all lanes share.

A batch that fails is run again window by window, so that one bad window costs its own article only; one that runs out of
memory is run in halves (memory.py). No error of ONNX Runtime leaves this file; how windows become arrays is the form's,
and threads are lanes.py's.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING

import numpy as np

from enricher.errors import ModelError
from enricher.inference.device import ORT_ERRORS, default_lanes, open_session
from enricher.inference.memory import OUT_OF_MEMORY, Turns, in_halves, is_out_of_memory, ran_out
from enricher.records import BatchResult, InFlight, Partition, RawRecord, Window, WindowFailure, WindowLabels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enricher.inference.forms import Feeds
    from enricher.inference.model import PreparedModel
    from enricher.records import Batch, Float32Array, Int32Array, WindowResult

__all__ = ["NOT_FINITE", "OnnxEngine", "default_lanes"]

NOT_FINITE = "NotFinite"
"""The `error_type` of a window whose scores are NaN or infinite. Every other type is the name of what was raised."""
MESSAGE_CHARS = 300
"""ONNX Runtime's messages name operators and shapes; the rest of a long one is its call stack."""
SHORT_TOKENS = 8
"""A short window, for what must be tried on any."""
LONG_TOKENS = 512
"""As long as the longest window that is tried gets where nobody says which are to come: longer ones are rare in news."""
PROBE_RUNS = 3
"""How often each lane runs in a timing probe. One run says more about the machine's other work."""
SAY_AFTER_S = 2.0
"""Warming up is reported on when it takes longer than this, and each time as long again."""
_OUTPUTS = ["labels", "scores"]

_log = logging.getLogger(__name__)


class InvalidWindow(ValueError):
    """A window that the model cannot take. The providers do not all notice: some read past the end of a table."""


_FAILURES: tuple[type[Exception], ...] = (*ORT_ERRORS, InvalidWindow)


class OnnxEngine:
    """Runs batches. `run` may be called from several threads at once, and blocks for the length of a run.

    `lanes` is from how many. `threads_per_run` is 1 for CPU lanes: as many runs as cores, one thread each, are faster and
    steadier than one run over all. `pad_id` fills the space behind short windows; any id of the vocabulary will do.
    """

    def __init__(self, model: PreparedModel, *, threads_per_run: int, pad_id: int, lanes: int = 1) -> None:
        self._form = model.form
        self._pad_id = pad_id
        self._turns = Turns()
        self._lanes = lanes
        self._max_window_tokens = model.checkpoint.max_window_tokens
        self._vocabulary = getattr(model.checkpoint.config, "vocab_size", None)
        self._session = open_session(
            model.onnx_path, model.form.runtime, threads_per_run=threads_per_run, lanes=lanes, device_id=model.device_id
        )
        self.labels = model.checkpoint.labels
        """Label names by id."""
        self.card = model.card
        self.provider = model.provider
        """The execution provider in use, as ONNX Runtime names it."""

    def run(self, batch: Batch) -> BatchResult:
        """A result for each window, in order. Raises ModelError where the device cannot run anything any more."""
        with self._turns.shared():
            results, fits_tokens = in_halves(self._attempt, batch.windows)
        results = [self._again_alone(result) if len(results) > 1 or ran_out(result) else result for result in results]
        if any(_raised(result) for result in results):
            self._require_device()
        return BatchResult(batch, results, fits_tokens)

    def padded_tokens(self, batch: Batch) -> int:
        """The tokens that the device computes for a batch, in the form that runs. Never blocks."""
        return self._form.padded_tokens(batch.windows)

    def warm_up(self, lengths_tokens: Sequence[int] = (), *, batch_tokens: int = 0) -> None:
        """Run what will come, so that no article waits for first-time work: each length, alone and in full batches.

        Without lengths, and on ONNX Runtime's CPU provider, which does no work by shape: a long window and a short one.
        Blocks. Raises ModelError where the model fails.
        """
        batches = self._shapes(lengths_tokens, batch_tokens)
        began_s = said_s = time.monotonic()
        for done, windows in enumerate(batches, 1):
            self._run_on_every_lane(windows, times=1)
            if time.monotonic() - said_s > SAY_AFTER_S:
                said_s = time.monotonic()
                _log.info("warming up: %d of %d shapes, %.0f s", done, len(batches), said_s - began_s)

    def probe(self, length_tokens: int, *, batch_tokens: int) -> float:
        """Tokens per second of full batches of one length, every lane busy: how fast the device is now.

        Blocks for a few runs. Raises ModelError where the model fails.
        """
        length_tokens = min(length_tokens, self._max_window_tokens)
        windows = [self._probe(length_tokens)] * max(1, batch_tokens // length_tokens)
        began_s = time.monotonic()
        self._run_on_every_lane(windows, times=PROBE_RUNS)
        return PROBE_RUNS * self._lanes * len(windows) * length_tokens / (time.monotonic() - began_s)

    def _shapes(self, lengths_tokens: Sequence[int], batch_tokens: int) -> list[list[Window]]:
        """Batches of padding to warm up with, the largest first: it decides how much memory is taken."""
        longest = min(max(lengths_tokens, default=LONG_TOKENS), self._max_window_tokens)
        if not lengths_tokens or self._form.runtime == "cpu":
            return [[self._probe(length)] for length in (longest, SHORT_TOKENS)]
        lengths = sorted({*lengths_tokens, SHORT_TOKENS}, reverse=True)
        rows = {length: {1, max(1, batch_tokens // length)} for length in lengths}
        return [[self._probe(length)] * count for length in lengths for count in sorted(rows[length], reverse=True)]

    def _run_on_every_lane(self, windows: Sequence[Window], *, times: int) -> None:
        with ThreadPoolExecutor(self._lanes) as pool:
            for results, fits_tokens in pool.map(
                partial(in_halves, self._attempt), repeat(windows, times * self._lanes)
            ):
                if isinstance(results[0], WindowFailure):
                    failure = f"{results[0].error_type}: {results[0].message}"
                    raise ModelError(f"the model fails on a window of padding: {failure}")
                if fits_tokens is not None:
                    _log.warning("out of memory: of %d windows at once only %d tokens fit", len(windows), fits_tokens)

    def _again_alone(self, result: WindowResult) -> WindowResult:
        """Where memory ran out, without the other lanes' runs beside it: only then is it the window's own fault."""
        if not isinstance(result, WindowFailure):
            return result
        with self._turns.alone() if ran_out(result) else self._turns.shared():
            return self._attempt([result.window])[0]

    def _attempt(self, windows: Sequence[Window]) -> list[WindowResult]:
        """One run of the device. Where it raises, all of the windows failed."""
        try:
            labels, scores = self._session.run(_OUTPUTS, self._feeds(windows))
        except _FAILURES as error:
            kind = OUT_OF_MEMORY if is_out_of_memory(error) else type(error).__name__
            return [WindowFailure(window, kind, str(error)[:MESSAGE_CHARS]) for window in windows]
        rows = zip(windows, self._form.rows(labels, windows), self._form.rows(scores, windows), strict=True)
        return [_result(*row) for row in rows]

    def _feeds(self, windows: Sequence[Window]) -> Feeds:
        feeds = self._form.feeds(windows, self._pad_id)
        longest, ids = max(window.length_tokens for window in windows), feeds["input_ids"]
        if longest > self._max_window_tokens:
            message = f"{longest} tokens, and the model takes {self._max_window_tokens}"
            raise InvalidWindow(message)
        if self._vocabulary is not None and not 0 <= ids.min() <= ids.max() < self._vocabulary:
            message = f"a token id is outside the vocabulary of {self._vocabulary}"
            raise InvalidWindow(message)
        return feeds

    def _require_device(self) -> None:
        """A window that raises alone is its article's fault only if the device still runs a harmless one."""
        with self._turns.alone():
            (result,) = self._attempt([self._probe(SHORT_TOKENS)])
        if _raised(result):
            assert isinstance(result, WindowFailure)
            raise ModelError(f"the device does not run the model any more: {result.error_type}: {result.message}")

    def _probe(self, length_tokens: int) -> Window:
        """A window of padding, of no article."""
        ticket = InFlight(RawRecord(Partition("", 0), 0, None, None), arrived_s=0.0)
        ids = np.full(length_tokens, self._pad_id, np.int32)
        return Window(ticket, ids, start=0, own_start=0, own_stop=0, specials_before=0, arrived_s=0.0)


def _result(window: Window, labels: Int32Array, scores: Float32Array) -> WindowResult:
    if np.isfinite(scores).all():
        return WindowLabels(window, labels, scores)
    return WindowFailure(window, NOT_FINITE, "the model's scores for this window are NaN or infinite")


def _raised(result: WindowResult) -> bool:
    return isinstance(result, WindowFailure) and result.error_type != NOT_FINITE
