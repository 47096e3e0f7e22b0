"""Batches of windows -> labels and scores, on one ONNX Runtime session that all lanes share.

A batch that fails is run again window by window, so that one bad window costs its own article only. No error of
ONNX Runtime leaves this file; how windows become arrays is the form's, and threads are lanes.py's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from enricher.errors import ModelError
from enricher.inference.device import ORT_ERRORS, default_lanes, open_session
from enricher.records import BatchResult, InFlight, Partition, RawRecord, Window, WindowFailure, WindowLabels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from enricher.inference.model import PreparedModel
    from enricher.records import Batch, Float32Array, Int32Array, WindowResult

__all__ = ["NOT_FINITE", "OnnxEngine", "default_lanes"]

NOT_FINITE = "NotFinite"
"""The `error_type` of a window whose scores are NaN or infinite. Every other type is the name of what was raised."""
MESSAGE_CHARS = 300
"""ONNX Runtime's messages name operators and shapes; the rest of a long one is its call stack."""
WARM_UP_TOKENS = 512
"""As long as a warm-up window gets, whatever the model allows: longer ones are rare in news."""
_OUTPUTS = ["labels", "scores"]


class OnnxEngine:
    """Runs batches. `run` may be called from several threads at once, and blocks for the length of a run.

    `threads_per_run` is 1 for CPU lanes: as many runs as cores, one thread each, are faster and steadier than one run
    over all. `pad_id` fills the space behind short windows; any id of the vocabulary will do.
    """

    def __init__(self, model: PreparedModel, *, threads_per_run: int, pad_id: int) -> None:
        self._form = model.form
        self._pad_id = pad_id
        self._warm_up_tokens = min(WARM_UP_TOKENS, model.checkpoint.max_window_tokens)
        self._session = open_session(model.onnx_path, model.device, threads_per_run=threads_per_run)
        self.labels = model.checkpoint.labels
        """Label names by id."""
        self.card = model.card
        self.provider = model.provider
        """The execution provider in use, as ONNX Runtime names it."""

    def run(self, batch: Batch) -> BatchResult:
        """A result for each window, in order. Raises ModelError where the device cannot run anything any more."""
        results = self._attempt(batch.windows)
        if len(batch.windows) > 1:
            results = [self._again_alone(result) for result in results]
        if any(_raised(result) for result in results):
            self._require_device()
        return BatchResult(batch, results)

    def warm_up(self) -> None:
        """Run a long window and a short one, so that no article waits for first-time work. Raises ModelError."""
        for length_tokens in (self._warm_up_tokens, 8):
            (result,) = self._attempt([self._probe(length_tokens)])
            if isinstance(result, WindowFailure):
                raise ModelError(f"the model fails on a window of padding: {result.error_type}: {result.message}")

    def _again_alone(self, result: WindowResult) -> WindowResult:
        return self._attempt([result.window])[0] if isinstance(result, WindowFailure) else result

    def _attempt(self, windows: Sequence[Window]) -> list[WindowResult]:
        """One run of the device. Where it raises, all of the windows failed."""
        try:
            labels, scores = self._session.run(_OUTPUTS, self._form.feeds(windows, self._pad_id))
        except ORT_ERRORS as error:
            return [WindowFailure(window, type(error).__name__, str(error)[:MESSAGE_CHARS]) for window in windows]
        rows = zip(windows, self._form.rows(labels, windows), self._form.rows(scores, windows), strict=True)
        return [_result(*row) for row in rows]

    def _require_device(self) -> None:
        """A window that raises alone is its article's fault only if the device still runs a harmless one."""
        (result,) = self._attempt([self._probe(8)])
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
