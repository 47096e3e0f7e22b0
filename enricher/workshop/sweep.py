"""Measures one variant: tokens per batch x window length x concurrency.

Windows are real text, all of one length, so nothing is padded. Cells are measured in rounds, one after the other, so that
other work on the machine affects all of them alike. The median counts.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from enricher.worker.records import Batch, Partition, RawRecord, Ticket, Window

if TYPE_CHECKING:
    from enricher.worker.inference.run.engine import OnnxEngine
    from enricher.worker.records import Int32Array

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Cell:
    """One combination. `batch_tokens` is the requested size; a batch has at least one window."""

    concurrency: int
    length_tokens: int
    batch_tokens: int

    @property
    def windows(self) -> int:
        """Windows of a batch."""
        return max(1, self.batch_tokens // self.length_tokens)


@dataclass(frozen=True, slots=True)
class Row:
    """A measured cell: medians over all rounds."""

    concurrency: int
    length_tokens: int
    batch_tokens: int
    windows: int
    tokens_per_s: float
    batch_ms: float


@dataclass(frozen=True, slots=True)
class Sweep:
    """How cells are measured."""

    seconds_per_cell: float
    rounds: int
    progress: Callable[[Cell, int, int], None]
    clock: Clock = time.perf_counter

    def run(self, engines: Callable[[int], OnnxEngine], cells: Sequence[Cell], text_ids: Int32Array) -> list[Row]:
        """Measure all cells. `engines(concurrency)` gives a warm engine; `text_ids` is `int32 [tokens]`, any text.

        A row has the medians of a cell over all rounds.
        """
        figures: dict[Cell, list[tuple[float, float]]] = {cell: [] for cell in cells}
        for done, (_, cell) in enumerate(itertools.product(range(self.rounds), cells), start=1):
            figures[cell].append(self._measure(engines(cell.concurrency), cell, text_ids))
            self.progress(cell, done, self.rounds * len(cells))
        return [
            Row(
                **asdict(cell),
                windows=cell.windows,
                tokens_per_s=statistics.median(rate for rate, _ in rounds),
                batch_ms=statistics.median(batch_ms for _, batch_ms in rounds),
            )
            for cell, rounds in figures.items()
        ]

    def _measure(self, engine: OnnxEngine, cell: Cell, text_ids: Int32Array) -> tuple[float, float]:
        """Tokens per second, and milliseconds from handing a batch to a thread until its labels have returned.

        All threads are busy for `seconds_per_cell`.
        """
        batch = batch_of(cell, text_ids)
        with ThreadPoolExecutor(cell.concurrency) as pool:
            # The first run of a shape is slow, with some providers on each thread.
            list(pool.map(engine.run, [batch] * cell.concurrency))
            began_s = self.clock()
            stop_s = began_s + self.seconds_per_cell
            threads = [pool.submit(self._thread, engine, batch, stop_s) for _ in range(cell.concurrency)]
            took_s = [thread.result() for thread in threads]
            elapsed_s = self.clock() - began_s
        runs = [one for thread in took_s for one in thread]
        return len(runs) * batch.real_tokens / elapsed_s, 1000 * statistics.median(runs)

    def _thread(self, engine: OnnxEngine, batch: Batch, stop_s: float) -> list[float]:
        """Seconds of each run until `stop_s`; at least one run."""
        took_s: list[float] = []
        while not took_s or self.clock() < stop_s:
            began_s = self.clock()
            engine.run(batch)
            took_s.append(self.clock() - began_s)
        return took_s


def batch_of(cell: Cell, text_ids: Int32Array) -> Batch:
    """Consecutive windows of the cell's length; the text repeats if it is too short."""
    ids = np.resize(text_ids, (cell.windows, cell.length_tokens))
    ticket = Ticket(RawRecord(Partition("", 0), 0, None, None), arrived_s=0.0)
    return Batch(tuple(Window(ticket, row, 0, 0, 0, 0, 0.0) for row in ids))
