"""The engine: what it answers, what one bad window costs, and how it survives a lack of memory."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from inference.conftest import REFERENCE, MakeWindow, poison
from onnxruntime.capi.onnxruntime_pybind11_state import EPFail, Fail, InvalidArgument, RuntimeException
from safetensors.numpy import load_file
from support.answers import WindowLabels, by_window, labels_of
from support.patience import PATIENCE_S
from support.sessions import DeadSession, Watched, replace_session, short_of_memory

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device import hardware
from enricher.worker.inference.device.hardware import default_concurrency
from enricher.worker.inference.device.sessions import Feeds, Session
from enricher.worker.inference.graph.padded import PaddedFloat32
from enricher.worker.inference.graph.variants import Variant
from enricher.worker.inference.run.engine import NOT_FINITE, OUT_OF_MEMORY, OnnxEngine, Turns, is_out_of_memory
from enricher.worker.inference.run.model import PreparedModel, prepare, prepare_variant
from enricher.worker.inference.run.selection import variants_for
from enricher.worker.records import Batch, Window, WindowFailure

POISON_ID = 77


@pytest.fixture(scope="module", params=[np.nan, np.inf, -np.inf])
def poisoned(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> OnnxEngine:
    """An engine over a graph with one token whose embedding is not finite: changed in the file, for none such is built."""
    model = prepare(REFERENCE / "bert", device="cpu", precision="fp32", cache_dir=tmp_path_factory.mktemp("poisoned"))
    row = load_file(REFERENCE / "bert" / "model.safetensors")["bert.embeddings.word_embeddings.weight"][POISON_ID]
    poison(model, row, request.param)
    return OnnxEngine(model, threads_per_run=1, pad_id=0)


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
    assert [labels_of(poisoned.run(Batch((good,))))[0]] * 2 == [
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
    alone = [labels_of(engine.run(Batch((each,))))[0] for each in windows]
    replace_session(engine, _JunkAtPadding)
    assert alone == labels_of(engine.run(Batch(tuple(windows))))


FLOAT32 = [variant for variant in variants_for("cpu") if variant.problem() is None and not variant.reduced]


@pytest.mark.parametrize("variant", FLOAT32, ids=lambda variant: variant.name)
def test_a_window_that_the_tables_of_the_model_do_not_hold_fails_alone(
    variant: Variant, cache_dir: Path, window: MakeWindow
) -> None:
    """An id behind the vocabulary, or more tokens than positions. OpenVINO checks neither, and nothing is cut in silence."""
    model = prepare_variant(Checkpoint.open(REFERENCE / "bert"), variant, "cpu", cache_dir=cache_dir)
    too_long = window([9] * (model.checkpoint.max_window_tokens + 1))
    batch = Batch((window([2, 99_999, 3]), window([2, 9, 3]), too_long))
    results = by_window(OnnxEngine(model, threads_per_run=1, pad_id=0).run(batch))
    assert [WindowFailure, WindowLabels, WindowFailure] == [type(result) for result in results]


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


ARENA = (
    "[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Non-zero status code returned while running MatMul node. Name:'m' Status "
    "Message: bfc_arena.cc:376 void* onnxruntime::BFCArena::AllocateRawInternal(size_t, bool, onnxruntime::Stream*) Failed "
    "to allocate memory for requested buffer of size 2830172160"
)
OUT_OF_IT: list[Exception] = [
    RuntimeException(ARENA),
    Fail("CUDA failure 2: out of memory ; GPU=0 ; hostname=h ; expr=cudaMalloc((void**)&p, size);"),
    Fail(
        "CUBLAS failure 1: the library was not initialized ; GPU=0 ; hostname=h ; file=/onnxruntime_src/onnxruntime/core/"
        "providers/cuda/cuda_stream_handle.cc ; line=79 ; expr=cublasCreate(&cublas_handle_); "
    ),
    Fail(
        "CUDNN failure 1001: CUDNN_STATUS_NOT_INITIALIZED ; GPU=0 ; hostname=h ; file=/onnxruntime_src/onnxruntime/core/"
        "providers/cuda/cuda_stream_handle.cc ; line=82 ; expr=cudnnCreate(&cudnn_handle_); "
    ),
    Fail("CUBLAS failure 3: CUBLAS_STATUS_ALLOC_FAILED ; GPU=0 ; expr=cublasCreate(&cublas_handle_);"),
    Fail("CUBLAS failure 3: the resource allocation failed ; GPU=0 ; expr=cublasCreate(&cublas_handle_);"),
    Fail("Available memory of 1024 is smaller than requested bytes of 4096"),
    EPFail("Exception from cpu_memory.cpp:257: Failed to allocate 7663872811008 bytes of memory"),
    RuntimeError("cudaErrorMemoryAllocation"),
    RuntimeError("std::bad_alloc"),
    MemoryError(),
]
OTHERWISE: list[Exception] = [
    Fail("CUDA error 700: an illegal memory access was encountered"),
    Fail("CUBLAS failure 13: the GPU program failed to execute ; GPU=0 ; expr=cublasGemmHelper("),
    Fail("CUBLAS failure 14: an internal operation failed ; GPU=0 ; hostname=h ; expr=cublasGemmHelper("),
    Fail("CUDNN failure 3000: CUDNN_STATUS_NOT_SUPPORTED ; GPU=0 ; hostname=h ; expr=cudnnReduceTensor("),
    InvalidArgument("indices element out of data bounds, idx=99999 must be within the inclusive range [-260,259]"),
    ValueError("a token id is outside the vocabulary"),
]


@pytest.mark.parametrize(
    ("error", "count", "runs"),
    [
        *((each, 8, [80, 40, 20, 20, 20, 20]) for each in OUT_OF_IT),
        (MemoryError(), 7, [70, 40, 20, 20, 20, 10]),
        (MemoryError(), 2, [20]),
    ],
    ids=lambda each: (str(each)[-30:] or "MemoryError") if isinstance(each, Exception) else str(each),
)
def test_a_batch_that_runs_out_of_memory_is_answered_in_full_by_parts(
    minilm: PreparedModel, engine: OnnxEngine, window: MakeWindow, error: Exception, count: int, runs: list[int]
) -> None:
    """Windows of ten tokens, and memory for 25: runs of two, equal labels, and a warning that says what fits, if any."""
    windows = [window([101, *range(1000 + first, 1008 + first), 102]) for first in range(count)]
    short, session = short_of_memory(minilm, 25, error)
    result = short.run(Batch(tuple(windows)))
    assert windows == [each.window for each in by_window(result)]
    assert labels_of(engine.run(Batch(tuple(windows)))) == labels_of(result)
    assert result.fits_tokens == (20 if len(runs) > 1 else None)
    assert session.runs == runs


@pytest.mark.parametrize("error", OTHERWISE, ids=lambda error: str(error)[:30])
def test_other_errors_are_not_taken_for_a_lack_of_memory(error: Exception) -> None:
    """A batch that fails for another reason is not run in halves, and the budget stays."""
    assert not is_out_of_memory(error)


@pytest.mark.parametrize(("packs", "fits_tokens"), [(False, 20), (True, 12)])
def test_what_fits_is_counted_as_the_budget_counts_it(
    minilm: PreparedModel, window: MakeWindow, fits_tokens: int, *, packs: bool
) -> None:
    """A window of ten tokens beside one of two is 20 tokens of a padded budget, and 12 of one without padding."""
    variant = type("Variant", (type(minilm.variant),), {"packs": packs})()
    short, _ = short_of_memory(replace(minilm, variant=variant), 22, MemoryError())
    result = short.run(Batch((window([101, *[1000] * 8, 102]), window([101, 102])) * 2))
    assert fits_tokens == result.fits_tokens


def test_a_window_that_does_not_fit_alone_fails_alone(minilm: PreparedModel, window: MakeWindow) -> None:
    """Its article becomes a dead letter, the others of the batch are answered; the device still runs a short one."""
    short, _ = short_of_memory(minilm, 25, RuntimeException(ARENA))
    long, good = window([101, *[1000] * 28, 102]), window([101, 1000, 102])
    result = short.run(Batch((good, long, good)))
    assert [WindowLabels, WindowFailure, WindowLabels] == [type(each) for each in by_window(result)]
    (failure,) = result.failures
    assert (long, OUT_OF_MEMORY) == (failure.window, failure.error_type)
    assert "Failed to allocate memory" in failure.message


def test_a_device_without_memory_for_anything_is_fatal(minilm: PreparedModel, window: MakeWindow) -> None:
    """Not even a short window fits: every article would become a dead letter, so the process ends instead."""
    short, _ = short_of_memory(minilm, 4, Fail("CUDA failure 2: out of memory"))
    with pytest.raises(ModelError, match=r"does not run the model any more: OutOfMemory.*CUDA failure 2"):
        short.run(Batch((window([101, *[1000] * 28, 102]),) * 3))


def test_warming_up_goes_on_in_parts_too(
    minilm: PreparedModel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A batch budget that is too large for the device is a warning at start, not the end of the worker."""
    short, _ = short_of_memory(minilm, 64, Fail("CUDA failure 2: out of memory"))
    monkeypatch.setattr(type(minilm.variant), "runtime", "cuda")  # which warms up with every shape
    short.warm_up([16], batch_tokens=256)
    assert "out of memory: a batch of 16 windows does not fit, one of 64 tokens does" in caplog.text


def test_a_window_that_ran_out_of_memory_is_tried_again_alone(minilm: PreparedModel, window: MakeWindow) -> None:
    """It would fit, had another thread not taken the memory: it must not be called too large for that."""
    engine = OnnxEngine(minilm, threads_per_run=1, pad_id=0, concurrency=2)
    first_runs, second_failed = threading.Event(), threading.Event()

    class Shared:
        """The long window's run holds the memory until the short one's first run has failed for it."""

        def __init__(self, real: Session) -> None:
            self._real = real

        def run(self, outputs: Sequence[str], feeds: dict[str, Any]) -> list[npt.NDArray[Any]]:
            if feeds["input_ids"].size > 10:
                first_runs.set()
                assert second_failed.wait(PATIENCE_S)
            elif not second_failed.is_set():
                second_failed.set()
                raise MemoryError
            answers: list[npt.NDArray[Any]] = self._real.run(outputs, feeds)
            return answers

    replace_session(engine, Shared)
    with ThreadPoolExecutor(2) as pool:
        large = pool.submit(engine.run, Batch((window([101, *[1000] * 28, 102]),)))
        assert first_runs.wait(PATIENCE_S)
        small = pool.submit(engine.run, Batch((window([101, 102]),)))
        assert [1, 1] == [len(labels_of(each.result(PATIENCE_S))) for each in (large, small)]


def test_whoever_runs_alone_waits_for_the_others_and_is_waited_for() -> None:
    """Runs beside one another overlap; none overlaps with the one that wants to be alone."""
    turns, inside, go, log = Turns(), threading.Barrier(3), threading.Event(), list[str]()

    def beside() -> None:
        with turns.share():
            inside.wait(PATIENCE_S)
            go.wait(PATIENCE_S)
            log.append("beside")

    def by_itself() -> None:
        with turns.alone():
            log.append("alone")

    with ThreadPoolExecutor(3) as pool:
        done = [pool.submit(beside), pool.submit(beside)]
        inside.wait(PATIENCE_S)
        done.append(pool.submit(by_itself))
        go.set()
        for each in done:
            each.result(PATIENCE_S)
    assert log == ["beside", "beside", "alone"]
    for open_again in (turns.share, turns.alone):
        with open_again():
            """Nothing is left that this would wait for."""


REALLY_OUT_OF_MEMORY = """
import resource, sys
from pathlib import Path

import numpy as np

from enricher.worker.inference.run.engine import OnnxEngine
from enricher.worker.inference.run.selection import variants_for
from enricher.worker.inference.run.model import open_model, prepare_variant
from enricher.worker.records import Batch, Ticket, Partition, RawRecord, Window

variant = next(each for each in variants_for("cpu") if each.name == sys.argv[3])
engine = OnnxEngine(
    prepare_variant(open_model(sys.argv[1]), variant, "cpu", cache_dir=Path(sys.argv[2])), threads_per_run=1, pad_id=0
)
ticket = Ticket(RawRecord(Partition("", 0), 0, None, None), 0.0)
ids = np.full(150, 7, np.int32)
batch = Batch((Window(ticket, ids, start=0, own_start=0, own_stop=0, specials_before=0, arrived_s=0.0),) * 256)
engine.run(Batch(batch.windows[:2]))
used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + 50_000_000,) * 2)
result = engine.run(batch)
answered = sum(len(run.windows) for run in result.runs)
again = engine.run(Batch(batch.windows[: result.fits_tokens // 150]))
print(answered, result.fits_tokens, again.fits_tokens)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not hold a process to a limit of address space")
@pytest.mark.parametrize("variant", [variant.name for variant in FLOAT32])
def test_a_real_lack_of_memory_on_the_cpu_costs_no_window(variant: str, tmp_path: Path) -> None:
    """A process held to 50 MB more than it has gets 256 windows through, and what then fits, fits again."""
    model = Path(__file__).parent.parent / "data" / "reference" / "bert"
    done = subprocess.run(
        [sys.executable, "-c", REALLY_OUT_OF_MEMORY, model, tmp_path, variant],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answered, fits_tokens, again = done.stdout.split()
    assert answered == "256"
    assert 150 <= int(fits_tokens) < 256 * 150
    assert again == "None"
