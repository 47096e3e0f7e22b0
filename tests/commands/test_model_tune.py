"""`enricher model tune`: what is measured, and what follows from it."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from commands.model_app import run_model, tiny_model

from enricher.worker.inference.run.engine import OnnxEngine
from enricher.worker.records import Batch
from enricher.worker.settings import Settings
from enricher.workshop.tune import Cell, Row, Sweep, best_row, compare_default

QUICK = ("--device", "cpu", "--precision", "fp32", "--seconds", "0", "--rounds", "1")


def measured(concurrency: int, length: int, batch: int, tokens_per_s: float) -> Row:
    """A cell with its throughput; the batch takes as long as that says."""
    windows = Cell(concurrency, length, batch).windows
    return Row(concurrency, length, batch, windows, tokens_per_s, 1000 * concurrency * windows * length / tokens_per_s)


def test_the_smallest_batch_and_fewest_threads_that_are_nearly_as_fast_win() -> None:
    """A batch twice as large for one percent more would only be back later, and each thread holds memory."""
    sweep = [
        measured(1, 128, 256, 6_000),
        measured(2, 128, 256, 9_000),
        measured(2, 128, 512, 9_900),
        measured(2, 128, 1024, 10_000),
        measured(2, 32, 256, 20_000),
    ]
    assert sweep[2] == best_row(sweep, 128)
    two, one = measured(2, 128, 512, 10_000), measured(1, 128, 512, 9_800)
    assert one == best_row([two, one], 128)


def test_defaults_are_compared_with_the_fastest_row_of_the_usual_windows() -> None:
    """Rows of shorter windows do not count, and what was not measured is said."""
    sweep = [measured(2, 128, 512, 9_000), measured(2, 128, 1024, 10_000), measured(2, 32, 512, 20_000)]
    assert "512 tokens and 2 at once, reach 90.0% of the fastest row" in compare_default(sweep, 128, 512, 2)
    assert "were not measured" in compare_default(sweep, 128, 512, 4)


def test_the_median_over_rounds_counts_and_cells_take_turns() -> None:
    """On a clock that goes one second a look: what is measured is arithmetic."""

    class Engine:
        """Notes what it runs."""

        def __init__(self) -> None:
            self.runs: list[int] = []

        def run(self, batch: Batch) -> None:
            """Nothing but that."""
            self.runs.append(batch.real_tokens)

    engine, seconds, told = Engine(), count(), list[int]()
    sweep = Sweep(0.0, 3, lambda _cell, done, _of: told.append(done), clock=lambda: float(next(seconds)))
    cells = [Cell(1, 8, 8), Cell(1, 8, 16)]
    result = sweep.run(lambda _concurrency: cast("OnnxEngine", engine), cells, np.arange(9, dtype=np.int32))
    assert [8, 8, 16, 16] * 3 == engine.runs, "once to warm up, once measured"
    assert [1, 2, 3, 4, 5, 6] == told
    # One look as the sweep begins, three by the thread (before, after, is it over?), one at its end: four seconds.
    assert [(2.0, 1000.0), (4.0, 1000.0)] == [(each.tokens_per_s, each.batch_ms) for each in result]


def test_the_command_prints_settings_that_can_be_used_and_stores_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The printed lines are environment variables of a worker; only the plot is written. Programs get the rows as JSON."""
    folder, cache, plot = tiny_model(tmp_path / "tiny"), tmp_path / "cache", tmp_path / "plot.png"
    before = sorted(folder.rglob("*"))
    batches = ("--concurrency", "1", "--batch-tokens", "64", "--batch-tokens", "256")
    result = run_model("tune", folder, *QUICK, *batches, "--out", plot, cache_dir=cache)
    assert result.exit_code == 0, (result.output, result.exception)
    assert b"\x89PNG" == plot.read_bytes()[:4]
    for line in result.stdout.splitlines():
        if line.startswith("ENRICHER_"):
            monkeypatch.setenv(*line.split("="))
    settings = Settings()
    assert settings.batching.max_batch_tokens in {64, 256}
    assert settings.model.concurrency == 1
    assert "The defaults, 512 tokens" in result.stderr
    rows = json.loads(run_model("tune", folder, *QUICK, *batches[:4], "--json", cache_dir=cache).stdout)
    assert {64} == {row["batch_tokens"] for row in rows}
    assert all(row["tokens_per_s"] > 0 and row["batch_ms"] > 0 for row in rows)
    assert before == sorted(folder.rglob("*"))
    assert [] == list(cache.rglob("tun*"))
