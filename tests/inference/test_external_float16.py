"""Exports converted to float16: the same labels, weights of half the size, and served only behind the gate.

No GPU is needed: ONNX Runtime's CPU provider runs the converted graph, with weights in float16 and products in float32. An
overflow on CUDA is the gate's to find.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from commands.model_app import run_model
from inference.conftest import MakeWindow, reference_of
from inference.exports import rows_of, write_export
from onnx import TensorProto, helper, numpy_helper
from support.head_references import OUTPUTS
from support.models import MINILM_FOLDER, open_minilm

from enricher.errors import ModelError
from enricher.worker.inference.graph.float16 import LARGEST
from enricher.worker.inference.graph.padded import PaddedFloat16, PaddedFloat32
from enricher.worker.inference.run import selection
from enricher.worker.inference.run.model import PreparedModel, open_model, prepare_variant
from enricher.worker.records import Window
from enricher.workshop import prepare as prepare_command
from enricher.workshop.gate.gold import DEFAULT_GOLD
from enricher.workshop.gate.report import GateReport
from tools.bench.plain_export import export

ON_A_CPU = PaddedFloat16(runtime="cpu")


@pytest.fixture(scope="module")
def minilm_export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """newswire-minilm as an exporter leaves it."""
    folder = tmp_path_factory.mktemp("exports") / "minilm"
    folder.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json", "enricher.json"):
        shutil.copy(MINILM_FOLDER / name, folder)
    export(open_minilm(), folder)
    return folder


def converted(folder: Path) -> PreparedModel:
    """The export in float16, on a CPU."""
    return prepare_variant(open_model(folder), ON_A_CPU, "cpu", cache_dir=folder.parent / "cache")


def labels_of(model: PreparedModel, windows: list[Window]) -> npt.NDArray[np.int32]:
    """The labels of all tokens, each window by itself."""
    session = model.open_session(threads_per_run=1, concurrency=1)
    feeds = (model.variant.feeds([window], 0) for window in windows)
    return np.concatenate([session.run(["labels"], each)[0][0] for each in feeds])


def bytes_of(model: PreparedModel) -> int:
    """The size of the graph and of its weights."""
    return sum(path.stat().st_size for path in model.onnx_path.parent.iterdir())


def test_labels_are_those_of_fp32_and_weights_half_as_large(minilm_export: Path, pud_windows: list[Window]) -> None:
    """A trained model, on 100 sentences."""
    half, single = (
        prepare_variant(open_model(minilm_export), variant, "cpu", cache_dir=minilm_export.parent / "cache")
        for variant in (ON_A_CPU, PaddedFloat32())
    )
    equal = labels_of(half, pud_windows[:100]) == labels_of(single, pud_windows[:100])
    assert equal.mean() > 0.999
    assert bytes_of(half) < 0.51 * bytes_of(single)
    tensors = onnx.load(str(half.onnx_path), load_external_data=False).graph.initializer
    assert TensorProto.FLOAT not in {each.data_type for each in tensors}


def test_the_mask_of_an_exporter_stays_finite(tmp_path: Path) -> None:
    """Float32's lowest number becomes one to which a score can be added in float16."""
    folder = write_export("bert", "single", tmp_path / "model")
    before = onnx.load(str(folder / "model.onnx"))
    assert any(np.abs(numpy_helper.to_array(each)).max(initial=0) > 1e38 for each in floats_of(before))
    after = onnx.load(str(converted(folder).onnx_path))
    largest = max(float(np.abs(numpy_helper.to_array(each)).max(initial=0)) for each in floats_of(after))
    assert largest == LARGEST


def floats_of(model: onnx.ModelProto) -> list[TensorProto]:
    """The tensors with numbers of any precision."""
    kinds = {TensorProto.FLOAT, TensorProto.FLOAT16}
    return [each for each in model.graph.initializer if each.data_type in kinds]


def test_functions_of_an_exporter_are_converted_too(window: MakeWindow, tmp_path: Path) -> None:
    """PyTorch's newer exporter leaves some in the file."""

    def wrap_last(model: onnx.ModelProto) -> None:
        for node in model.graph.node:
            node.output[:] = ["inner" if each == "logits" else each for each in node.output]
        domains = [helper.make_opsetid("", model.opset_import[0].version)]
        zero = helper.make_node("Constant", [], ["zero"], value=numpy_helper.from_array(np.array(0, np.float32)))
        add = helper.make_node("Add", ["x", "zero"], ["y"])
        model.functions.append(helper.make_function("pkg", "Same", ["x"], ["y"], [zero, add], domains))
        model.opset_import.append(helper.make_opsetid("pkg", 1))
        model.graph.node.append(helper.make_node("Same", ["inner"], ["logits"], domain="pkg"))

    folder = write_export("bert", "single", tmp_path / "model", wrap_last)
    expected = np.load(OUTPUTS / "bert.npz")["ragged.single"]
    np.testing.assert_allclose(rows_of(converted(folder), reference_of("bert", window)[0]), expected, rtol=0, atol=2e-2)


def test_a_graph_that_cannot_be_converted_is_refused_by_name(tmp_path: Path) -> None:
    """Here a constant that lacks its last bytes."""

    def cut(model: onnx.ModelProto) -> None:
        model.graph.initializer.append(TensorProto(name="c", dims=[2], data_type=TensorProto.FLOAT, raw_data=bytes(7)))
        model.graph.node.append(helper.make_node("Identity", ["c"], ["d"]))

    folder = write_export("bert", "single", tmp_path / "model", cut)
    with pytest.raises(ModelError, match=r"model\.onnx: it cannot be converted to fp16: .*Choose precision fp32"):
        converted(folder)


def add_and_subtract(path: Path) -> None:
    """Add 30,000 to the first label's logits, which the conversion cuts, and take it away in three parts, which it keeps."""
    model = onnx.load(str(path), load_external_data=False)
    for node in model.graph.node:
        node.output[:] = ["0.logits" if each == "logits" else each for each in node.output]
    width = model.graph.output[0].type.tensor_type.shape.dim[-1].dim_value
    first = np.eye(1, width, dtype=np.float32)[0]
    for number, (operator, value) in enumerate([("Add", 3e4), *[("Sub", 1e4)] * 3]):
        model.graph.initializer.append(numpy_helper.from_array(value * first, f"{number}.value"))
        output = "logits" if number == 3 else f"{number + 1}.logits"
        model.graph.node.append(helper.make_node(operator, [f"{number}.logits", f"{number}.value"], [output]))
    path.write_bytes(model.SerializeToString())


@pytest.mark.parametrize("overflows", [False, True])
def test_it_serves_once_the_gate_has_passed(
    *, overflows: bool, minilm_export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`prepare` converts, measures and chooses as on a GPU: a graph that needs larger numbers is not taken."""
    source = Path(shutil.copytree(minilm_export, tmp_path / "source"))
    if overflows:
        add_and_subtract(source / "model.onnx")
    for module in (selection, prepare_command):
        monkeypatch.setattr(module, "variants_for", lambda _device: (ON_A_CPU, PaddedFloat32()))
    out = tmp_path / "out"
    gold = tmp_path / "gold.jsonl"
    gold.write_bytes(b"".join(DEFAULT_GOLD.read_bytes().splitlines(keepends=True)[:60]))
    asked = ("--out", out, "--device", "cpu", "--gold", gold, "--limit-points", "3")
    result = run_model("prepare", source, *asked, cache_dir=tmp_path / "cache")
    assert result.exit_code == 0, (result.output, result.exception)
    report = GateReport.model_validate_json((out / "gate-padded-fp16.json").read_bytes())
    assert overflows is not report.passed
    chosen = selection.choose([open_model(out)], "cpu", "auto").variant
    assert (PaddedFloat32() if overflows else ON_A_CPU) == chosen
    (graph,) = (out / "graphs").iterdir()
    assert chosen.name in graph.name
    assert chosen.precision == json.loads((out / "manifest.json").read_bytes())["precision"]
