"""`enricher model tune`: what is measured, and what follows from it."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from commands.model_app import run_model, tiny_model

from enricher.errors import SettingsError
from enricher.worker.build.loaded_model import batch_rules
from enricher.worker.inference.run.engine import OnnxEngine
from enricher.worker.inference.run.tuning import Tuning, TuningRow
from enricher.worker.records import Batch
from enricher.worker.settings import Settings
from enricher.workshop import tune
from enricher.workshop.freshness import CANDIDATES
from enricher.workshop.recommend import bucket_edges, overhead_tokens, recommend, why_not_fastest
from enricher.workshop.sweep import Cell, Sweep, batch_of
from tools.only_task import load_model

pytestmark = pytest.mark.usefixtures("brief_traffic")


def measured(concurrency: int, length: int, batch: int, tokens_per_s: float) -> TuningRow:
    """A cell with its throughput; the batch takes as long as that says."""
    windows = Cell(concurrency, length, batch).windows
    return TuningRow(
        concurrency=concurrency,
        length_tokens=length,
        batch_tokens=batch,
        windows=windows,
        tokens_per_s=tokens_per_s,
        batch_ms=1000 * concurrency * windows * length / tokens_per_s,
    )


def test_why_the_fastest_row_is_not_advised_is_said() -> None:
    """It is of shorter windows, or larger and hardly faster; nothing is said where it is advised."""
    small, large, short = measured(2, 128, 256, 980), measured(2, 128, 512, 1_000), measured(2, 64, 512, 2_000)
    assert "512 tokens and 2 at once, is 2.0 % faster" in str(why_not_fastest([small, large], small))
    assert "on windows of 64 tokens; the advice is for windows of 128" in str(why_not_fastest([small, short], small))
    assert why_not_fastest([small, large], large) is None


def test_the_smallest_batch_that_is_nearly_as_fast_is_recommended() -> None:
    """A batch twice as large for one percent more would only be back later."""
    sweep = [
        measured(1, 128, 256, 6_000),
        measured(2, 128, 256, 9_000),
        measured(2, 128, 512, 9_900),
        measured(2, 128, 1024, 10_000),
        measured(2, 32, 256, 20_000),
    ]
    assert sweep[2] == recommend(sweep, 128)


def test_fewer_threads_are_taken_where_more_add_nothing() -> None:
    """Each thread holds memory."""
    two, one = measured(2, 128, 512, 10_000), measured(1, 128, 512, 9_800)
    assert one == recommend([two, one], 128)


@pytest.mark.parametrize("overhead", [0, 12, 80])
def test_the_fixed_cost_of_a_run_is_read_off_the_line(overhead: int) -> None:
    """Batches that take `tokens + overhead` times something."""
    rows = [measured(2, 32, tokens, 1.0) for tokens in (128, 256, 512, 1024)]
    line = [row.model_copy(update={"batch_ms": 0.05 * (row.batch_tokens + overhead)}) for row in rows]
    assert overhead == overhead_tokens(line, concurrency=2)
    assert 0 == overhead_tokens(line[:1], concurrency=2), "one point makes no line"


@pytest.mark.parametrize(("window", "overhead"), [(128, 4), (128, 40), (100, 40), (512, 40), (12, 40)])
def test_bucket_edges_grow_up_to_the_longest_window(window: int, overhead: int) -> None:
    """And are edges that the settings take."""
    edges = bucket_edges(window, overhead)
    assert list(edges) == sorted(set(edges))
    assert window == edges[-1]
    assert len(bucket_edges(window, 4)) >= len(edges)


def test_a_batch_is_windows_of_one_length_from_the_text() -> None:
    """A short text begins again."""
    batch = batch_of(Cell(1, 4, 12), np.arange(5, dtype=np.int32))
    assert [[0, 1, 2, 3], [4, 0, 1, 2], [3, 4, 0, 1]] == [window.ids.tolist() for window in batch.windows]
    assert len(batch_of(Cell(1, 64, 16), np.arange(5, dtype=np.int32)).windows) == 1


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


def test_the_command_writes_measurements_plot_and_settings_that_can_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it prints is what a worker reads."""
    folder = tiny_model(tmp_path / "tiny")
    arguments = ("--device", "cpu", "--precision", "fp32", "--concurrency", "1", "--concurrency", "2", "--seconds", "0")
    batches = ("--batch-tokens", "64", "--batch-tokens", "256", "--rounds", "1", "--force")
    plot = tmp_path / "plot.png"
    result = run_model("tune", folder, *arguments, *batches, "--plot", plot, cache_dir=tmp_path / "cache")
    assert result.exit_code == 0, (result.output, result.exception)
    (path,) = (tmp_path / "cache").glob("*-reports/tuning-cpu-*.json")
    assert str(path) in result.stderr.replace("\n", "")
    tuning = Tuning.model_validate_json(path.read_bytes())
    assert {1, 2} == {row.concurrency for row in tuning.rows}
    assert all(row.tokens_per_s > 0 and row.batch_ms > 0 for row in tuning.rows)
    assert b"\x89PNG" == plot.read_bytes()[:4]
    assert "Early batches" in result.stderr
    assert tuning.early_overhead in {0.0, *CANDIDATES}
    for name, value in tune.settings_of(tuning).items():
        assert f"{name}={value}" in result.stdout
        monkeypatch.setenv(name, value)
    settings = Settings()
    assert tuning.early_overhead == settings.batching.early_overhead
    assert tuning.bucket_edges == settings.batching.bucket_edges
    assert (tuning.max_batch_tokens, tuning.concurrency) == (
        settings.batching.max_batch_tokens,
        settings.model.concurrency,
    )


def test_a_worker_takes_what_was_tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a setting said by hand; one that is said wins."""
    folder = tiny_model(tmp_path / "tiny")
    arguments = ("--device", "cpu", "--precision", "fp32", "--concurrency", "1", "--seconds", "0")
    result = run_model(
        "tune", folder, *arguments, "--batch-tokens", "64", "--rounds", "1", "--force", cache_dir=tmp_path / "cache"
    )
    assert result.exit_code == 0, (result.output, result.exception)
    monkeypatch.setenv("ENRICHER_MODEL__SOURCE", str(folder))
    monkeypatch.setenv("ENRICHER_MODEL__PRECISION", "fp32")
    monkeypatch.setenv("ENRICHER_MODEL__CACHE_DIR", str(tmp_path / "cache"))
    model = load_model(Settings())
    (path,) = (tmp_path / "cache").glob("*-reports/tuning-cpu-*.json")
    assert Tuning.model_validate_json(path.read_bytes()).early_overhead == batch_rules(Settings(), model).early_overhead
    assert (1, 64) == (model.concurrency, batch_rules(Settings(), model).max_batch_tokens)
    monkeypatch.setenv("ENRICHER_BATCHING__MAX_BATCH_TOKENS", "96")
    assert batch_rules(Settings(), model).max_batch_tokens == 96


QUICK = (
    "--device",
    "cpu",
    "--precision",
    "fp32",
    "--concurrency",
    "1",
    "--seconds",
    "0",
    "--batch-tokens",
    "64",
    "--rounds",
    "1",
)


@pytest.mark.parametrize(
    ("load", "option", "written"),
    [(0.0, None, True), (1e3, None, False), (1e3, "--force", True), (0.0, "--dry-run", False)],
)
def test_what_was_measured_on_a_busy_machine_is_not_put_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load: float, option: str | None, *, written: bool
) -> None:
    """Unless it is asked for; and nothing is ever written beside the model, which may be the installed package."""
    monkeypatch.setattr(tune, "_load_average", lambda: load)
    folder, cache = tiny_model(tmp_path / "tiny"), tmp_path / "cache"
    before = sorted(folder.rglob("*"))
    result = run_model("tune", folder, *QUICK, *filter(None, [option]), cache_dir=cache)
    assert result.exit_code == 0, (result.output, result.exception)
    assert written == bool(list(cache.rglob("tuning-*.json")))
    assert written == ("--undo" in result.stderr)
    assert before == sorted(folder.rglob("*"))


def test_a_tuning_can_be_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is beside the model counts again then; a report in the same place stays."""
    monkeypatch.setattr(tune, "_load_average", lambda: 0.0)
    folder, cache = tiny_model(tmp_path / "tiny"), tmp_path / "cache"
    run_model("tune", folder, *QUICK, cache_dir=cache)
    (path,) = cache.rglob("tuning-*.json")
    report = path.with_name("gate-openvino-int8.json")
    report.write_text("{}", "utf-8")
    result = run_model("tune", folder, "--undo", cache_dir=cache)
    assert result.exit_code == 0, (result.output, result.exception)
    assert [report] == list(path.parent.iterdir())
    assert "nothing to remove" in run_model("tune", folder, "--undo", cache_dir=cache).stderr


def test_a_plot_without_matplotlib_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal names the extra, before anything is measured."""
    monkeypatch.setattr("enricher.workshop.sweep_plot.find_spec", lambda _name: None)
    error = run_model("tune", tmp_path, "--plot", tmp_path / "plot.png", cache_dir=tmp_path).exception
    assert isinstance(error, SettingsError)
    assert "kafka-enricher[reports]" in str(error)
