"""The bf16 variant and OpenVINO, which runs it: where they are refused, and that what runs is bf16 and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import TensorProto, helper
from support.answers import WindowLabels, by_window
from support.models import open_minilm

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device import sessions
from enricher.worker.inference.device.sessions import open_session
from enricher.worker.inference.graph.padded import OpenVinoBfloat16, OpenVinoFloat32, PackedFloat32, PaddedFloat32
from enricher.worker.inference.run.engine import OnnxEngine
from enricher.worker.inference.run.model import prepare_variant
from enricher.worker.inference.run.selection import choose, variant_named
from enricher.worker.records import Batch, WindowFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from enricher.worker.records import Window

    MakeWindow = Callable[[Sequence[int]], Window]

REFERENCE = Path(__file__).parent.parent / "data" / "reference"
needs_bf16 = pytest.mark.skipif(OpenVinoBfloat16().problem() is not None, reason=f"{OpenVinoBfloat16().problem()}")


@pytest.fixture(scope="module")
def bf16_engine(tmp_path_factory: pytest.TempPathFactory) -> OnnxEngine:
    """newswire-minilm in bf16, two threads."""
    model = prepare_variant(open_minilm(), OpenVinoBfloat16(), "cpu", cache_dir=tmp_path_factory.mktemp("bf16"))
    return OnnxEngine(model, threads_per_run=1, pad_id=0, concurrency=2)


def test_openvino_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what to install."""
    monkeypatch.setattr(sessions, "is_installed", lambda: False)
    assert "pip install openvino" in (OpenVinoBfloat16().problem() or "")


def test_openvino_that_does_not_load_is_said_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Installing it again would hardly help."""
    monkeypatch.setattr(sessions, "capabilities", lambda: None)
    assert "does not load" in (OpenVinoBfloat16().problem() or "")


needs_openvino = pytest.mark.skipif(not sessions.is_installed(), reason="OpenVINO is not installed")


@needs_openvino
def test_openvino_tells_nobody_that_it_runs(tmp_path: Path) -> None:
    """Its import would report itself, and leave an identifier of the machine in HOME."""
    code = (
        "from enricher.worker.inference.device import sessions; assert sessions.capabilities();"
        "import openvino.tools.ovc as ovc; print(ovc.telemetry.__module__)"
    )
    environment = {**os.environ, "HOME": str(tmp_path)} | dict.fromkeys(("CI", "GITHUB_ACTIONS"), "")
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "openvino.tools.ovc.telemetry_stub"
    assert list(tmp_path.iterdir()) == []


def test_a_processor_without_bf16_units_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenVINO would run bf16 there too, slower than float32."""
    monkeypatch.setattr(sessions, "capabilities", lambda: ["FP32", "INT8", "BIN"])
    assert "no bf16 units" in (OpenVinoBfloat16().problem() or "")
    monkeypatch.setattr(sessions, "capabilities", lambda: ["BF16", "FP32", "INT8", "BIN"])
    assert OpenVinoBfloat16().problem() is None


def test_float32_runs_without_openvino_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """By ONNX Runtime, a little slower: for auto and by name. With it, OpenVINO is the faster one."""
    monkeypatch.setattr(sessions, "is_installed", lambda: True)
    monkeypatch.setattr(sessions, "capabilities", lambda: ["FP32"])
    assert variant_named("cpu", "fp32") == OpenVinoFloat32()
    monkeypatch.setattr(sessions, "is_installed", lambda: False)
    assert variant_named("cpu", "fp32") == PackedFloat32()
    assert "pip install openvino" in (OpenVinoFloat32().problem() or "")
    assert choose([Checkpoint.open(REFERENCE / "bert")], "cpu", "fp32").variant == PackedFloat32()


@pytest.mark.parametrize(
    ("variant", "longest", "rounded"),
    [(OpenVinoBfloat16(), 17, 32), (OpenVinoFloat32(), 17, 20), (OpenVinoFloat32(), 65, 72)],
)
def test_lengths_are_rounded_up_and_counted_so(
    variant: OpenVinoFloat32, longest: int, rounded: int, window: MakeWindow
) -> None:
    """What is fed, and what the counters is told, is what the device computes; answers are read past it."""
    windows = [window([2, 9, 3]), window([2] * longest)]
    feeds = variant.feeds(windows, pad_id=5)
    assert (2, rounded) == feeds["input_ids"].shape
    assert 2 * rounded == variant.padded_tokens(windows)
    assert ([3, longest], 5) == (feeds["lengths"].tolist(), feeds["input_ids"][1, longest])
    assert [0, rounded] == list(variant.starts(windows, (2, rounded)))


_FIRST_RUNS = """
import faulthandler, sys, threading
from pathlib import Path
import numpy as np
from enricher.worker.inference.device.sessions import OpenVinoSession
faulthandler.dump_traceback_later(60, exit=True)
session = OpenVinoSession(Path(sys.argv[1]), "openvino-fp32", streams=2, threads=2)
feeds = {"input_ids": np.full((1, 4), 2, np.int32), "lengths": np.array([4], np.int32)}
together = threading.Barrier(2)
def first_run():
    together.wait()
    session.run(["labels"], feeds)
threads = [threading.Thread(target=first_run, daemon=True) for _ in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


@needs_openvino
def test_the_first_runs_of_a_process_may_begin_at_once(tmp_path: Path) -> None:
    """They hung for ever in two starts of five, each in the other's way. One process can begin only once: so several."""
    model = prepare_variant(Checkpoint.open(REFERENCE / "bert"), OpenVinoFloat32(), "cpu", cache_dir=tmp_path)
    command = [sys.executable, "-c", _FIRST_RUNS, str(model.onnx_path)]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with ThreadPoolExecutor(2) as pool:
        starts = list(pool.map(lambda _: subprocess.run(command, env=environment, check=False).returncode, range(6)))
    assert [0] * 6 == starts


@needs_bf16
def test_what_runs_is_bf16(tmp_path: Path, window: MakeWindow) -> None:
    """Logits differ from float32's as bf16's do: by more than float32's own rounding, and by less than the tolerance."""
    logits = []
    for variant in (PaddedFloat32(), OpenVinoBfloat16()):
        model = prepare_variant(Checkpoint.open(REFERENCE / "bert"), variant, "cpu", cache_dir=tmp_path)
        session = open_session(model.onnx_path, variant.runtime, threads_per_run=1)
        logits.append(session.run(["logits"], variant.feeds([window(range(16))], 0))[0])
    difference = np.abs(logits[0] - logits[1]).max() / np.abs(logits[0]).max()
    assert 1e-4 < difference < 2e-2


@needs_bf16
def test_a_graph_that_openvino_takes_only_in_part_is_refused() -> None:
    """Nothing else takes the rest."""
    known, unknown = ([helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 2])] for name in ("x", "y"))
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node("Inverse", ["e"], ["y"], domain="com.microsoft"),
    ]
    graph = helper.make_graph(nodes, "partly", known, unknown)
    domains = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    content = helper.make_model(graph, opset_imports=domains, ir_version=10).SerializeToString()
    assert open_session(content, "cpu", threads_per_run=1)
    with pytest.raises(ModelError, match="cannot be opened on openvino"):
        open_session(content, "openvino-bf16", threads_per_run=1)


@needs_bf16
def test_threads_may_run_at_once_and_warm_up_covers_every_length(
    bf16_engine: OnnxEngine, pud_windows: list[Window]
) -> None:
    """Two threads on one session, after warming up over the buckets, give what one thread gives."""
    bf16_engine.warm_up([16, 32, 64], batch_tokens=128)
    groups = [Batch(tuple(pud_windows[first : first + 4])) for first in range(0, 32, 4)]
    expected = [_labels(bf16_engine, group) for group in groups]
    with ThreadPoolExecutor(2) as pool:
        assert expected == list(pool.map(lambda group: _labels(bf16_engine, group), groups))
    assert bf16_engine.provider == "OpenVINO"


@needs_bf16
def test_a_window_that_openvino_would_run_wrongly_fails_alone(
    bf16_engine: OnnxEngine, window: MakeWindow, pud_windows: list[Window]
) -> None:
    """It does not check ids or lengths itself."""
    batch = Batch((window([101, 99_999, 102]), pud_windows[0], window([1000] * 513)))
    results = by_window(bf16_engine.run(batch))
    assert [WindowFailure, WindowLabels, WindowFailure] == [type(result) for result in results]


def _labels(engine: OnnxEngine, batch: Batch) -> list[list[int]]:
    return [each.labels.tolist() for each in by_window(engine.run(batch)) if isinstance(each, WindowLabels)]
