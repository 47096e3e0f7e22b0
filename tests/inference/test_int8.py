"""The int8 variant: which processors and models run it, what its recipe is bound to, and that batches change nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from support.answers import WindowLabels, by_window
from support.models import MINILM_FOLDER, open_minilm
from support.recipes import empty_recipe

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device import processor, sessions
from enricher.worker.inference.graph.int8 import Recipe, read_recipe, recipe_path, write_recipe
from enricher.worker.inference.graph.padded import OpenVinoBfloat16, OpenVinoFloat32, OpenVinoInt8
from enricher.worker.inference.run.engine import OnnxEngine
from enricher.worker.inference.run.model import prepare_variant
from enricher.worker.inference.run.selection import choose, recipe_problem
from enricher.worker.records import Batch
from enricher.worker.rules.windowing import LENGTH_STEP_TOKENS

if TYPE_CHECKING:
    from enricher.worker.records import Window

REFERENCE = Path(__file__).parent.parent / "data" / "reference"
FLAGS = "fpu avx2 avx512f"
needs_int8 = pytest.mark.skipif(OpenVinoInt8().problem() is not None, reason=f"{OpenVinoInt8().problem()}")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    """A small model, in a folder of the test's own."""
    return Checkpoint.open(Path(shutil.copytree(REFERENCE / "bert", tmp_path / "model")))


def shipped() -> Recipe:
    """The recipe of newswire-minilm."""
    recipe = read_recipe(MINILM_FOLDER)
    assert recipe is not None
    return recipe


def on_processor(monkeypatch: pytest.MonkeyPatch, folder: Path, flags: str, *, bf16: bool) -> None:
    """Let the system and OpenVINO report another processor."""
    (folder / "cpuinfo").write_text(f"flags\t\t: {flags}\n")
    monkeypatch.setattr(processor, "_CPU_INFO", folder / "cpuinfo")
    reported = ["FP32", *(["BF16"] if bf16 else [])]
    monkeypatch.setattr(sessions, "is_installed", lambda: True)
    monkeypatch.setattr(sessions, "capabilities", lambda: reported)


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("", "the processor has neither VNNI nor AMX"),
        ("avx512_vnni", None),
        ("avx_vnni", None),
        ("amx_int8", None),
    ],
)
def test_a_processor_without_int8_products_is_refused(
    more: str, problem: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AVX512 alone is not VNNI: sums would saturate. bf16 units are not needed."""
    on_processor(monkeypatch, tmp_path, f"{FLAGS} {more}", bf16=False)
    assert problem == OpenVinoInt8().problem()


def test_a_system_that_does_not_say_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Better float32 than wrong answers."""
    on_processor(monkeypatch, tmp_path, FLAGS, bf16=True)
    monkeypatch.setattr(processor, "_CPU_INFO", tmp_path / "none")
    assert "does not say" in (OpenVinoInt8().problem() or "")


def test_without_openvino_there_is_no_int8(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what to install."""
    monkeypatch.setattr(sessions, "is_installed", lambda: False)
    assert "pip install openvino" in (OpenVinoInt8().problem() or "")


@pytest.mark.parametrize(("bf16", "hint"), [(True, "bf16"), (False, "f32")])
def test_what_is_not_quantised_is_bf16_where_there_are_units(
    bf16: bool,  # noqa: FBT001  a case
    hint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """fp32 on Cascade Lake and Ice Lake, which have VNNI only."""
    on_processor(monkeypatch, tmp_path, f"{FLAGS} avx512_vnni", bf16=bf16)
    assert hint == sessions._precision_hint(OpenVinoInt8().runtime)


@pytest.mark.parametrize(
    ("flags", "bf16", "expected"),
    [
        ("avx512_vnni", True, "openvino-int8"),
        ("avx512_vnni", False, "openvino-int8"),
        ("avx512_bf16", True, "openvino-bf16"),
        ("", False, "openvino-fp32"),
    ],
)
def test_a_model_takes_the_fastest_that_the_processor_has(
    flags: str,
    bf16: bool,  # noqa: FBT001  a case
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """int8 first, by its own report; without VNNI bf16, and then fp32, and the reasons are told."""
    on_processor(monkeypatch, tmp_path, f"{FLAGS} {flags}", bf16=bf16)
    choice = choose([open_minilm()], "cpu", "auto")
    assert expected == choice.variant.name
    rejected = {variant.name: why for variant, why in choice.rejected}
    if expected != "openvino-int8":
        assert "the processor has neither VNNI nor AMX" == rejected["openvino-int8"]
    if expected == "openvino-fp32":
        assert "no bf16 units" in rejected["openvino-bf16"]


def test_a_model_without_a_recipe_is_told_how_to_get_one(checkpoint: Checkpoint) -> None:
    """The command, with the folder."""
    problem = recipe_problem(checkpoint, OpenVinoInt8())
    assert f"there is no int8.json in {checkpoint.folder}" in (problem or "")
    assert f"`enricher model prepare {checkpoint.folder} --out DIR --precision int8` makes one" in (problem or "")
    assert recipe_problem(checkpoint, OpenVinoBfloat16()) is None
    with pytest.raises(ModelError, match=r"there is no int8\.json"):
        prepare_variant(checkpoint, OpenVinoInt8(), "cpu", cache_dir=checkpoint.folder)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model_digest": "1" * 64}, r"for another model \(sha256 111111111111\)"),
        ({"builder_version": 1}, "for version 1 of the graph builder"),
    ],
)
def test_a_recipe_of_another_model_or_builder_is_refused(
    change: dict[str, object], reason: str, checkpoint: Checkpoint
) -> None:
    """Its ranges would be wrong, and nothing else would notice."""
    write_recipe(checkpoint.folder, empty_recipe(checkpoint, **change))
    with pytest.raises(ModelError, match=f"{reason}.*enricher model prepare"):
        prepare_variant(checkpoint, OpenVinoInt8(), "cpu", cache_dir=checkpoint.folder)


def test_a_recipe_that_cannot_be_read_is_no_crash(checkpoint: Checkpoint) -> None:
    """A worker with precision auto runs something else."""
    recipe_path(checkpoint.folder).write_text("{")
    assert "cannot be read" in (recipe_problem(checkpoint, OpenVinoInt8()) or "")
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
    recipe, checkpoint = shipped(), open_minilm()
    assert recipe_problem(checkpoint, OpenVinoInt8()) is None
    path = prepare_variant(checkpoint, OpenVinoInt8(), "cpu", cache_dir=tmp_path).onnx_path
    tensors = onnx.load(str(path), load_external_data=False).graph.initializer
    int8 = {each.name for each in tensors if each.data_type == onnx.TensorProto.INT8}
    assert len(recipe.products) == len(int8) > 0
    assert recipe.measured.equal_labels >= recipe.measured.target


def test_the_files_of_a_graph_have_one_mode(tmp_path: Path) -> None:
    """The quantiser's files can be read by whoever can read the cache."""
    path = prepare_variant(open_minilm(), OpenVinoInt8(), "cpu", cache_dir=tmp_path).onnx_path
    assert {path.stat().st_mode} == {each.stat().st_mode for each in path.parent.iterdir()}
    assert {"model.onnx", "model.weights"} == {each.name for each in path.parent.iterdir()}


@needs_int8
def test_what_shares_a_batch_changes_nothing(cache_dir: Path, pud_windows: list[Window]) -> None:
    """Scales are fixed, so labels and scores are those of each window alone."""
    model = prepare_variant(open_minilm(), OpenVinoInt8(), "cpu", cache_dir=cache_dir)
    engine = OnnxEngine(model, threads_per_run=1, pad_id=0)
    windows = pud_windows[:64]
    alone = [answer for window in windows for answer in by_window(engine.run(Batch((window,))))]
    together = by_window(engine.run(Batch(tuple(windows))))
    for one, other in zip(alone, together, strict=True):
        assert isinstance(one, WindowLabels)
        assert isinstance(other, WindowLabels)
        np.testing.assert_array_equal(one.labels, other.labels)
        np.testing.assert_array_equal(one.scores, other.scores)


def test_lengths_are_rounded_as_for_bf16() -> None:
    """Smaller steps make a window's scores depend on its batch."""
    lengths = range(1, 200)
    assert [LENGTH_STEP_TOKENS] * len(lengths) == [OpenVinoInt8().step_tokens(each) for each in lengths]
