"""Texts through one variant of a head with one answer per window: its logits, or a vector. Keeps every number.

An article's row is the mean of its windows' rows, weighted by the tokens that each owns, as the worker makes it by default.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from enricher.errors import FatalError, ModelError
from enricher.worker.heads import reads_of
from enricher.worker.heads.head import pool
from enricher.worker.inference.device.cores import default_concurrency
from enricher.worker.inference.device.session import SESSION_ERRORS
from enricher.worker.records import OwnedRow, Part, Ticket
from enricher.workshop.gate.runs import NO_RECORD

if TYPE_CHECKING:
    from enricher.worker.inference.run.model import PreparedModel
    from enricher.worker.records import Float32Array, Int32Array, Window
    from enricher.workshop.gate.batches import Batching
    from enricher.workshop.gate.runs import Progress, TokenizedTexts

OUTPUT = "head.0.rows"
"""The name in graph/builder.py for the output of the only head of a pass, unless it finds entities."""


@dataclass(frozen=True, slots=True, eq=False)
class RowsRun:
    """The answers of one variant."""

    rows: Float32Array
    """`float32 [texts, values]`; numbers that are not finite are 0 here."""
    not_finite: int
    """Numbers that are NaN or infinite."""
    lengths_tokens: Int32Array
    """`int32 [texts]`, special tokens not counted."""
    windows: int
    runs: int


class RowsRunner:
    """One variant of a checkpoint on its device. Raises ModelError if it does not run."""

    def __init__(self, model: PreparedModel, progress: Progress) -> None:
        self._model = model
        self._progress = progress
        self._concurrency = default_concurrency(model.device)
        self._reads = reads_of([model.checkpoint.head])
        self._session = model.open_session(threads_per_run=1, concurrency=self._concurrency)

    def run(self, texts: TokenizedTexts, batching: Batching, stage: str) -> RowsRun:
        """Run all texts, in the batches that `batching` makes. Blocks for seconds. Raises FatalError."""
        parts = [Part(Ticket(NO_RECORD, 0.0, article=article)) for article in texts.articles]
        cut = [texts.cutter.cut(part, tokens, 0.0) for part, tokens in zip(parts, texts.tokens, strict=True)]
        if empty := sum(not windows for windows in cut):
            raise FatalError(f"{empty} texts of the gold set have no tokens: remove them")
        windows = [window for each in cut for window in each]
        row_of = self._rows(windows, batching(windows), texts.pad_id, stage)
        rows = np.stack([_pool(each, row_of) for each in cut])
        finite = np.isfinite(rows)
        return RowsRun(
            rows=np.where(finite, rows, np.float32(0)),
            not_finite=int((~finite).sum()),
            lengths_tokens=texts.lengths_tokens,
            windows=len(windows),
            runs=len(batching(windows)),
        )

    def _rows(
        self, windows: list[Window], batches: list[list[Window]], pad_id: int, stage: str
    ) -> dict[Window, Float32Array]:
        rows: dict[Window, Float32Array] = {}
        with ThreadPoolExecutor(self._concurrency) as pool:
            outputs = pool.map(lambda batch: self._output(batch, pad_id), batches)
            for batch, output in zip(batches, outputs, strict=True):
                rows.update(zip(batch, output, strict=True))
                self._progress(stage, len(rows), len(windows))
        return rows

    def _output(self, windows: list[Window], pad_id: int) -> Float32Array:
        """`float32 [windows, values]`."""
        variant = self._model.variant
        try:
            (rows,) = self._session.run([OUTPUT], variant.feeds(windows, pad_id, self._reads))
        except SESSION_ERRORS as error:
            raise ModelError(f"{variant.name} does not run: {error}") from error
        return rows


def _pool(windows: list[Window], row_of: dict[Window, Float32Array]) -> Float32Array:
    return pool([OwnedRow(each.own_start, each.own_stop - each.own_start, row_of[each]) for each in windows], "mean")
