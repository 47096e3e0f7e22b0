"""The variants that OpenVINO runs: which machines and models, that bf16 is bf16, and what int8 is bound to."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from inference.conftest import REFERENCE, MakeWindow
from support.models import MINILM_FOLDER, open_minilm
from support.reports import empty_recipe

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device import hardware, sessions
from enricher.worker.inference.device.sessions import open_session
from enricher.worker.inference.graph.int8 import read_recipe, recipe_path, write_recipe
from enricher.worker.inference.graph.padded import (
    OpenVinoBfloat16,
    OpenVinoFloat32,
    OpenVinoInt8,
    PackedFloat32,
    PaddedFloat32,
)
from enricher.worker.inference.run.model import prepare_variant
from enricher.worker.inference.run.selection import choose, recipe_problem, variant_named

needs_bf16 = pytest.mark.skipif(OpenVinoBfloat16().problem() is not None, reason=f"{OpenVinoBfloat16().problem()}")


needs_openvino = pytest.mark.skipif(not sessions.is_installed(), reason="OpenVINO is not installed")


VNNI, BF16 = "fpu avx2 avx512f avx512_vnni", ["FP32", "BF16"]
NO_INT8, NO_BF16 = "the processor has neither VNNI nor AMX", "no bf16 units"


@pytest.mark.parametrize(
    ("installed", "reports", "flags", "chosen", "problems"),
    [
        (False, None, VNNI, "packed-fp32", dict.fromkeys(("int8", "bf16", "fp32"), "pip install openvino")),
        (True, None, VNNI, "packed-fp32", dict.fromkeys(("int8", "bf16", "fp32"), "does not load")),
        (True, ["FP32"], "fpu avx2 avx512f", "openvino-fp32", {"int8": NO_INT8, "bf16": NO_BF16}),
        (True, BF16, "fpu avx512f avx512_bf16", "openvino-bf16", {"int8": NO_INT8}),
        (True, BF16, None, "openvino-bf16", {"int8": "this system does not say"}),
        (True, BF16, VNNI, "openvino-int8", {}),
        (True, ["FP32"], VNNI, "openvino-int8", {"bf16": NO_BF16}),
        (True, ["FP32"], "fpu avx_vnni", "openvino-int8", {"bf16": NO_BF16}),
        (True, ["FP32"], "fpu amx_int8", "openvino-int8", {"bf16": NO_BF16}),
    ],
)
def test_a_model_takes_the_fastest_that_the_processor_has(
    reports: list[str] | None,
    flags: str | None,
    chosen: str,
    problems: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    installed: bool,
) -> None:
    """int8 with VNNI or AMX, else bf16, else fp32, by ONNX Runtime without OpenVINO; and why not the others.

    AVX512 alone is not VNNI: sums would saturate. Without bf16 units, bf16 would run slower than float32.
    """
    if flags is not None:
        (tmp_path / "cpuinfo").write_text(f"flags\t\t: {flags}\n")
    monkeypatch.setattr(hardware, "_CPU_INFO", tmp_path / "cpuinfo")
    monkeypatch.setattr(sessions, "is_installed", lambda: installed)
    monkeypatch.setattr(sessions, "capabilities", lambda: reports)
    variants = (OpenVinoInt8(), OpenVinoBfloat16(), OpenVinoFloat32())
    found = {each.precision: why for each in variants if (why := each.problem()) is not None}
    assert problems.keys() == found.keys()
    assert all(problems[each] in found[each] for each in problems)
    assert chosen == choose([open_minilm()], "cpu", "auto").variant.name
    assert ("bf16" if reports == BF16 else "f32") == sessions._precision_hint(OpenVinoInt8().runtime)
    fp32 = PackedFloat32() if "fp32" in problems else OpenVinoFloat32()
    assert fp32 == variant_named("cpu", "fp32") == choose([open_minilm()], "cpu", "fp32").variant


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


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """A small model, in a folder of the test's own."""
    return Checkpoint.open(Path(shutil.copytree(REFERENCE / "bert", tmp_path / "model")))


@pytest.mark.parametrize(
    ("recipe", "reason"),
    [
        (lambda _: "{", "cannot be read"),
        (
            lambda checkpoint: empty_recipe(checkpoint, model_digest="1" * 64).model_dump_json(),
            r"for another model \(sha256 111111111111\).*enricher model prepare",
        ),
        (
            lambda checkpoint: empty_recipe(checkpoint, builder_version=1).model_dump_json(),
            "for version 1 of the graph builder.*enricher model prepare",
        ),
    ],
    ids=["no JSON", "another model", "another builder"],
)
def test_a_recipe_of_another_model_or_builder_is_refused(
    recipe: Callable[[Checkpoint], str], reason: str, checkpoint: Checkpoint
) -> None:
    """Its ranges would be wrong, and nothing else would notice. A worker with precision auto runs something else."""
    recipe_path(checkpoint.folder).write_text(recipe(checkpoint))
    with pytest.raises(ModelError, match=reason):
        prepare_variant(checkpoint, OpenVinoInt8(), "cpu", cache_dir=checkpoint.folder)
    assert choose([checkpoint], "cpu", "auto").variant.precision == "fp32"


def test_each_recipe_has_its_own_graph_in_the_cache(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """A graph of an older calibration must not be taken for the new one; other variants have the graph they had."""
    cache, paths = tmp_path / "cache", list[Path]()
    others = [prepare_variant(checkpoint, OpenVinoFloat32(), "cpu", cache_dir=cache).onnx_path]
    for seed in (0, 1, 0):
        write_recipe(checkpoint.folder, empty_recipe(checkpoint, seed=seed))
        paths.append(prepare_variant(checkpoint, OpenVinoInt8(), "cpu", cache_dir=cache).onnx_path)
        others.append(prepare_variant(checkpoint, OpenVinoFloat32(), "cpu", cache_dir=cache).onnx_path)
    assert [paths[0], paths[1], paths[0]] == paths
    assert paths[0] != paths[1]
    assert {others[0]} == set(others)


def test_a_recipe_beside_a_model_is_of_that_model(tmp_path: Path) -> None:
    """All of its products are in the graph, as int8."""
    recipe, checkpoint = read_recipe(MINILM_FOLDER), open_minilm()
    assert recipe is not None
    assert recipe_problem(checkpoint, OpenVinoInt8()) is None
    path = prepare_variant(checkpoint, OpenVinoInt8(), "cpu", cache_dir=tmp_path).onnx_path
    tensors = onnx.load(str(path), load_external_data=False).graph.initializer
    int8 = {each.name for each in tensors if each.data_type == onnx.TensorProto.INT8}
    assert len(recipe.products) == len(int8) > 0
    assert recipe.measured.equal_labels >= recipe.measured.target
