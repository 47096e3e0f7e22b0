"""Compares int8 with float32 on held-out windows: label agreement, and divergence of the labels' probabilities."""

from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from enricher.worker.inference.device.opening import open_session
from enricher.worker.inference.device.openvino_session import openvino_problem
from enricher.worker.inference.graph.padded import PaddedFloat32
from enricher.worker.inference.graph.qdq import write_int8
from enricher.worker.inference.graph.recipe import Measured, Recipe, six_digits
from enricher.workshop.quantisation.product_inputs import batches_of, real_rows

if TYPE_CHECKING:
    import numpy.typing as npt

    from enricher.worker.inference.device.session import Runtime, Session
    from enricher.worker.records import Float32Array, Window

    Float64Array = npt.NDArray[np.float64]

_BYTES_PER_TOKEN = 128 * 1024
"""Makes batches of about a thousand tokens, like a worker's."""
GLANCE_BATCHES = 4
"""About four thousand tokens, which is enough to rank candidates."""


class HeldOutComparison:
    """The held-out windows with float32's answers to them, with which int8's are compared."""

    def __init__(self, path: Path, windows: list[Window], threads: int, target: float) -> None:
        self._path = path
        self._threads = threads
        self._target = target
        self._batches = batches_of(windows, _BYTES_PER_TOKEN)
        self._few = self._batches[:: -(-len(self._batches) // GLANCE_BATCHES)]
        self._runtime: Runtime = "openvino-bf16" if openvino_problem("bf16") is None else "openvino-fp32"
        session = open_session(path, "cpu", threads_per_run=threads)
        self._expected, self._few_expected = (
            _log_probabilities(self._logits(session, batches)) for batches in (self._batches, self._few)
        )

    def measure(self, recipe: Recipe) -> Measured:
        """Make the int8 graph and run it. Raises ModelError if OpenVINO does not run it."""
        return self._measure(recipe, self._batches, self._expected)

    def glance(self, recipe: Recipe) -> Measured:
        """The same on GLANCE_BATCHES of the batches, from the shortest windows to the longest."""
        return self._measure(recipe, self._few, self._few_expected)

    def _measure(self, recipe: Recipe, batches: list[list[Window]], expected: Float64Array) -> Measured:
        with tempfile.TemporaryDirectory(prefix="int8-", dir=self._path.parent) as name:
            _, path = write_int8(self._path, Path(name), recipe)
            session = open_session(path, self._runtime, threads_per_run=1, concurrency=self._threads)
            found = _log_probabilities(self._logits(session, batches))
        divergence = (np.exp(expected) * (expected - found)).sum(axis=-1).mean()
        equal = (expected.argmax(axis=-1) == found.argmax(axis=-1)).mean()
        return Measured(
            windows=sum(len(batch) for batch in batches),
            tokens=len(expected),
            divergence=six_digits(divergence),
            equal_labels=six_digits(equal),
            target=self._target,
        )

    def _logits(self, session: Session, batches: list[list[Window]]) -> Float32Array:
        """`float32 [tokens, labels]`."""
        variant = PaddedFloat32()

        def run(batch: list[Window]) -> Float32Array:
            (logits,) = session.run(["logits"], variant.feeds(batch, 0))
            return real_rows(logits, batch)

        with ThreadPoolExecutor(self._threads) as pool:
            return np.concatenate(list(pool.map(run, batches)))


def _log_probabilities(logits: Float32Array) -> Float64Array:
    below = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    result: Float64Array = below - np.log(np.exp(below).sum(axis=-1, keepdims=True))
    return result
