"""The engine: what it answers, and what one bad window costs."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from inference.conftest import REFERENCE, MakeWindow
from safetensors.numpy import load_file
from support.answers import WindowLabels, by_window
from support.sessions import DeadSession, Watched, replace_session

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device import hardware
from enricher.worker.inference.device.hardware import default_concurrency
from enricher.worker.inference.device.sessions import SESSION_ERRORS, Feeds, Session
from enricher.worker.inference.graph.padded import PaddedFloat32
from enricher.worker.inference.run.engine import NOT_FINITE, OnnxEngine
from enricher.worker.inference.run.model import PreparedModel, prepare, prepare_variant
from enricher.worker.records import Batch, Window, WindowFailure

POISON_ID = 77


@pytest.fixture(scope="module", params=[np.nan, np.inf, -np.inf])
def poisoned(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> OnnxEngine:
    """An engine over a graph with one token whose embedding is not finite: changed in the file, for none such is built."""
    model = prepare(REFERENCE / "bert", device="cpu", precision="fp32", cache_dir=tmp_path_factory.mktemp("poisoned"))
    row = load_file(REFERENCE / "bert" / "model.safetensors")["bert.embeddings.word_embeddings.weight"][POISON_ID]
    path = model.onnx_path.parent / "model.weights"
    content = path.read_bytes()
    assert content.count(row.tobytes()) == 1
    path.write_bytes(content.replace(row.tobytes(), np.full_like(row, request.param).tobytes()))
    return OnnxEngine(model, threads_per_run=1, pad_id=0)


def _labels(engine: OnnxEngine, windows: Sequence[Window]) -> list[list[int]]:
    results = by_window(engine.run(Batch(tuple(windows))))
    assert all(isinstance(result, WindowLabels) for result in results)
    return [result.labels.tolist() for result in results if isinstance(result, WindowLabels)]


def test_results_come_in_the_order_and_length_of_their_windows(engine: OnnxEngine, pud_windows: list[Window]) -> None:
    """Each window gets labels and probabilities for exactly its own tokens."""
    batch = Batch(tuple(pud_windows[:8]))
    result = engine.run(batch)
    assert batch is result.batch
    assert list(batch.windows) == [each.window for each in by_window(result)]
    for each in by_window(result):
        assert isinstance(each, WindowLabels)
        assert (each.window.length_tokens,) == each.labels.shape == each.scores.shape
        assert (np.dtype(np.int32), np.dtype(np.float32)) == (each.labels.dtype, each.scores.dtype)
        assert ((each.scores > 1 / len(engine.labels)) & (each.scores <= 1)).all()


def test_a_window_with_scores_that_are_not_finite_fails_alone(poisoned: OnnxEngine, window: MakeWindow) -> None:
    """NaN and both infinities in the weights reach the score; the other windows of the batch are answered as ever."""
    good, bad = window([2, 10, 11, 12, 3]), window([2, 10, POISON_ID, 3])
    first, failure, last = by_window(poisoned.run(Batch((good, bad, good))))
    assert isinstance(failure, WindowFailure)
    assert (bad, NOT_FINITE) == (failure.window, failure.error_type)
    assert [_labels(poisoned, [good])[0]] * 2 == [
        each.labels.tolist() for each in (first, last) if isinstance(each, WindowLabels)
    ]


class _JunkAtPadding:
    """A session whose scores at padding are NaN, as a device may give them, and whose labels there are entities."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def run(self, outputs: Sequence[str], feeds: Feeds, /) -> list[npt.NDArray[Any]]:
        labels, scores = (each.copy() for each in self._session.run(outputs, feeds))
        padding = np.arange(labels.shape[1]) >= feeds["lengths"][:, None]
        labels[padding], scores[padding] = 6, np.nan
        return [labels, scores]


def test_what_stands_at_padding_is_no_windows(tmp_path: Path, window: MakeWindow) -> None:
    """Scores that are not finite there fail no window, and every window has the labels that it has alone."""
    model = prepare_variant(Checkpoint.open(REFERENCE / "bert"), PaddedFloat32(), "cpu", cache_dir=tmp_path)
    engine = OnnxEngine(model, threads_per_run=1, pad_id=0)
    windows = [window([2, 10, 3]), window([2, 10, 11, 12, 13, 3]), window([2, 3])]
    alone = [_labels(engine, [each])[0] for each in windows]
    replace_session(engine, _JunkAtPadding)
    assert alone == _labels(engine, windows)


def test_a_window_longer_than_the_position_table_fails_alone(
    engine: OnnxEngine, window: MakeWindow, pud_windows: list[Window]
) -> None:
    """It is never cut in silence."""
    results = by_window(engine.run(Batch((window([1000] * 513), pud_windows[0]))))
    assert [WindowFailure, WindowLabels] == [type(result) for result in results]


def test_a_device_that_runs_nothing_any_more_is_fatal(minilm: PreparedModel, pud_windows: list[Window]) -> None:
    """A lost device must not turn every article into a dead letter."""
    engine = OnnxEngine(minilm, threads_per_run=1, pad_id=0)
    replace_session(engine, lambda _: DeadSession())
    with pytest.raises(ModelError, match=r"does not run the model any more.*CUDA error 700"):
        engine.run(Batch((pud_windows[0],)))
    with pytest.raises(ModelError, match="window of padding"):
        engine.warm_up()


def test_warming_up_takes_no_more_threads_than_threads(minilm: PreparedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread that ever ran keeps a stream of the device, however many shapes are tried."""
    engine = OnnxEngine(minilm, threads_per_run=1, pad_id=0, concurrency=2)
    session = replace_session(engine, Watched)
    monkeypatch.setattr(type(minilm.variant), "runtime", "cuda")  # which warms up with every shape
    engine.warm_up([16, 32, 48, 64], batch_tokens=128)
    assert session.runs > 8
    assert 1 <= len(session.threads) <= 2


def test_a_thread_is_opened_with_a_run_in_its_own_thread(minilm: PreparedModel) -> None:
    """A device that fails here fails again at the first batch, which reports it."""
    engine = OnnxEngine(minilm, threads_per_run=1, pad_id=0)
    session = replace_session(engine, Watched)
    engine.open_thread()
    assert session.threads == {threading.get_ident()}
    replace_session(engine, lambda _: DeadSession())
    engine.open_thread()


def test_every_error_of_onnx_runtime_is_mapped() -> None:
    """Each kind that the binding defines is in the list that the engine catches."""
    assert {"Fail", "InvalidArgument", "EPFail", "RuntimeException", "NotImplemented"} <= {
        kind.__name__ for kind in SESSION_ERRORS
    }


def test_a_cpu_has_a_thread_for_each_core_that_the_container_may_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A quota below the number of cores counts, rounded down, in both versions of cgroups."""
    monkeypatch.setattr(hardware, "_CGROUP", tmp_path)
    everything = default_concurrency("cpu")
    assert everything >= 1
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    assert default_concurrency("cpu") == 1
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert everything == default_concurrency("cpu")
    (tmp_path / "cpu.max").unlink()
    (tmp_path / "cpu").mkdir()
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("50000\n")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert default_concurrency("cpu") == 1
    assert default_concurrency("cuda") == 2
