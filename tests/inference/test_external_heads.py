"""Exports with heads for classes, numbers and vectors, against transformers' numbers; and exports converted to float16.

No GPU is needed: ONNX Runtime's CPU provider runs the converted graph, with weights in float16 and products in float32. An
overflow on CUDA is the gate's to find.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from commands.model_app import run_model
from inference.conftest import MakeWindow, change_config, reference_of
from inference.exports import VARIANTS, Change, prepare_export, rows_of, write_export
from onnx import TensorProto, helper, numpy_helper
from support.head_references import HEADS, OUTPUTS, HeadName
from support.models import MINILM_FOLDER, open_minilm

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.bert_weights import BERT_FAMILIES
from enricher.worker.inference.checkpoint.onnx_model import OnnxModel
from enricher.worker.inference.graph.external import LARGEST
from enricher.worker.inference.graph.padded import PaddedFloat16, PaddedFloat32
from enricher.worker.inference.graph.variants import Variant
from enricher.worker.inference.run import selection
from enricher.worker.inference.run.model import PreparedModel, open_model, prepare_variant
from enricher.worker.inference.run.selection import check_command
from enricher.worker.records import Window
from enricher.workshop import prepare as prepare_command
from enricher.workshop.gate.gold import DEFAULT_GOLD
from enricher.workshop.gate.report import GateReport
from tools.bench.plain_export import export

LIMITS = {"fp32": 1e-4, "bf16": 8e-2, "fp16": 2e-2}
ON_A_CPU = PaddedFloat16(runtime="cpu")


def only_output(model: onnx.ModelProto, name: str, *dimensions: str) -> None:
    """Leave the first token's state as the only output."""
    model.graph.initializer.append(numpy_helper.from_array(np.array(0, np.int64), "place"))
    model.graph.node.append(helper.make_node("Gather", ["last_hidden_state", "place"], [name], axis=1))
    width = model.graph.output[0].type.tensor_type.shape.dim[-1].dim_value
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [*dimensions, width]))


def require_answers(
    model: PreparedModel,
    family: str,
    head: HeadName,
    window: MakeWindow,
    limit: float = 1e-4,
    values: int | None = None,
) -> None:
    """The first `values` are transformers' own, for all windows that the model takes. Raises AssertionError."""
    windows = reference_of(family, window)[0]
    kept = [each.length_tokens <= model.checkpoint.max_window_tokens for each in windows]
    rows = rows_of(model, [each for each, fits in zip(windows, kept, strict=True) if fits])
    assert np.float32 == rows.dtype
    expected = np.load(OUTPUTS / f"{family}.npz")[f"ragged.{head}"][kept, :values]
    np.testing.assert_allclose(rows, expected, rtol=0, atol=limit)


@pytest.mark.parametrize("variant", [*VARIANTS, ON_A_CPU], ids=lambda variant: variant.name)
@pytest.mark.parametrize(
    ("family", "head"), [*((each, "single") for each in BERT_FAMILIES), *(("bert", each) for each in HEADS[1:])]
)
def test_each_kind_of_head_says_what_transformers_says(
    family: str, head: HeadName, variant: Variant, window: MakeWindow, tmp_path: Path
) -> None:
    """Classes, several classes, vectors by mean and by the first token; every family's head for classes."""
    checkpoint = open_model(write_export(family, head, tmp_path / "model"))
    model = prepare_variant(checkpoint, variant, "cpu", cache_dir=tmp_path)
    require_answers(model, family, head, window, LIMITS[model.card.precision])


def rename(model: onnx.ModelProto, name: str) -> None:
    """Hidden states have any name, and a pooler's output stands beside them, which is ignored."""
    model.graph.node.append(helper.make_node("Identity", ["last_hidden_state"], [name]))
    model.graph.node.append(helper.make_node("ReduceMax", ["last_hidden_state", "axes"], ["pooler_output"], keepdims=0))
    model.graph.initializer.append(numpy_helper.from_array(np.array([1], np.int64), "axes"))
    width = model.graph.output[0].type.tensor_type.shape.dim[-1].dim_value
    del model.graph.output[:]
    shapes: dict[str, list[str | int]] = {"pooler_output": ["b", width], name: ["b", "l", width]}
    for output, shape in shapes.items():
        model.graph.output.append(helper.make_tensor_value_info(output, TensorProto.FLOAT, shape))


def ask_for_positions(model: onnx.ModelProto) -> None:
    """`position_ids` are fed, counted from the family's first one, and TensorFlow's `input_mask` and `segment_ids`."""
    names = {"attention_mask": "input_mask", "token_type_ids": "segment_ids"}
    kept = [node for node in model.graph.node if node.output[0] != "position_ids"]
    del model.graph.node[:]
    model.graph.node.extend(kept)
    for node in model.graph.node:
        node.input[:] = [names.get(each, each) for each in node.input]
    for value in model.graph.input:
        value.name = names.get(value.name, value.name)
    model.graph.input.append(helper.make_tensor_value_info("position_ids", TensorProto.INT64, ["b", "l"]))


@pytest.mark.parametrize(
    ("family", "head", "change"),
    [
        pytest.param("bert", "mean", lambda model: rename(model, "token_embeddings"), id="sentence-transformers"),
        pytest.param("bert", "mean", lambda model: rename(model, "output_0"), id="numbered outputs"),
        pytest.param("bert", "cls", lambda model: only_output(model, "sentence_embedding", "batch"), id="it pools"),
        pytest.param("bert", "single", ask_for_positions, id="positions"),
        pytest.param("roberta", "single", ask_for_positions, id="positions after padding"),
    ],
)
def test_names_of_other_exporters_are_understood(
    family: str, head: HeadName, change: Change, window: MakeWindow, tmp_path: Path
) -> None:
    """The answers stay transformers'."""
    require_answers(prepare_export(write_export(family, head, tmp_path / "model", change)), family, head, window)


def test_without_its_pooling_an_export_makes_no_vectors(tmp_path: Path) -> None:
    """As many of sentence-transformers are; and a pooler's output looks pooled, and was trained for something else."""
    folder = write_export("bert", "cls", tmp_path / "model", lambda model: only_output(model, "pooler_output", "batch"))
    with pytest.raises(ModelError, match=r"its outputs are pooler_output \[batch, .*for embedding.*last_hidden_state"):
        prepare_export(folder)
    (folder / "modules.json").unlink()
    shutil.rmtree(folder / "1_Pooling")
    with pytest.raises(ModelError, match=r"BertModel, .*copy modules\.json and 1_Pooling"):
        open_model(folder)


# ---- which file


def test_the_file_with_the_usual_name_is_taken_and_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The hub's folders have copies beside it; a source names another file."""
    folder = write_export("bert", "single", tmp_path / "model")
    (folder / "onnx").mkdir()
    for name in ("model.onnx", "model.onnx.data"):
        (folder / name).rename(folder / "onnx" / name)
    shutil.copy(folder / "onnx" / "model.onnx", folder / "onnx" / "model_O2.onnx")
    caplog.set_level("INFO")
    assert isinstance(prepare_export(folder).checkpoint, OnnxModel)
    assert "the graph is onnx/model.onnx, not onnx/model_O2.onnx" in caplog.text
    named = open_model(folder / "onnx" / "model_O2.onnx")
    assert (folder, folder / "onnx" / "model_O2.onnx") == (named.folder, named.source)
    assert "model check" in check_command(named, "cpu", VARIANTS[0])
    assert str(named.source) in check_command(named, "cpu", VARIANTS[0])
    with pytest.raises(ModelError, match=r"model_O9\.onnx: no such file.*onnx/model_O2\.onnx"):
        open_model(folder / "onnx" / "model_O9.onnx")


@pytest.mark.parametrize("names", [("a.onnx", "b.onnx"), ("model.onnx", "onnx/model.onnx")])
def test_two_candidates_are_refused(names: tuple[str, str], tmp_path: Path) -> None:
    """The message has a source that names one."""
    folder = write_export("bert", "single", tmp_path / "model")
    (folder / "onnx").mkdir()
    content = (folder / "model.onnx").read_bytes()
    (folder / "model.onnx").unlink()
    for name in names:
        (folder / name).write_bytes(content)
    with pytest.raises(
        ModelError, match=f"2 ONNX files.*{names[0]}, {names[1]}. Name it as the source: {folder}/{names[0]}"
    ):
        open_model(folder)


# ---- what the file does not say


def spoil(model: onnx.ModelProto, operator: str, inputs: list[str], **attributes: Any) -> None:  # noqa: ANN401  as onnx.helper takes them
    """Put an operator between the logits and the output."""
    for node in model.graph.node:
        node.output[:] = ["inner" if each == "logits" else each for each in node.output]
    model.graph.node.append(helper.make_node(operator, ["inner", *inputs], ["logits"], **attributes))


def fix_batch(model: onnx.ModelProto) -> None:
    """A size that the exporter wrote into the graph."""
    model.graph.initializer.append(numpy_helper.from_array(np.array([1, 4], np.int64), "one_window"))
    spoil(model, "Reshape", ["one_window"])


def widen(model: onnx.ModelProto) -> None:
    """A fifth class, and an output whose width the file does not say."""
    model.graph.initializer.append(numpy_helper.from_array(np.array([0, 1, 2, 3, 0], np.int64), "five"))
    spoil(model, "Gather", ["five"], axis=1)
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_param = "classes"


def ignore_mask(model: onnx.ModelProto) -> None:
    """Every window sees the padding of its batch: the mask is 1 everywhere."""
    place = next(index for index, node in enumerate(model.graph.node) if node.output[0] == "mask.float")
    model.graph.node[place].output[0] = "mask.read"
    nothing = helper.make_node("Sub", ["mask.read", "mask.read"], ["mask.nothing"])
    model.graph.node.insert(place + 1, helper.make_node("Exp", ["mask.nothing"], ["mask.float"]))
    model.graph.node.insert(place + 1, nothing)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda model: spoil(model, "NoSuchOperator", [], domain="com.microsoft"), "NoSuchOperator"),
        (fix_batch, r"does not run a batch of 2 windows.*dynamic batch and length"),
        (widen, r"numbers of shape \(2, 5\), not \(2, 4\): it is not the model of config\.json"),
        (ignore_mask, "a window's answers change by .* beside a longer window"),
    ],
    ids=["operator", "fixed size", "width", "mask"],
)
def test_what_shows_only_when_it_runs_is_refused_when_it_is_opened(
    change: Change, message: str, tmp_path: Path
) -> None:
    """Before the first article, and by name."""
    model = prepare_export(write_export("bert", "single", tmp_path / "model", change))
    with pytest.raises(ModelError, match=message):
        model.open_session(threads_per_run=1, concurrency=1)


def test_more_tokens_than_embeddings_are_refused(tmp_path: Path) -> None:
    """A config.json of another model; without vocab_size, the tokenizer is compared with the graph."""
    folder = write_export("bert", "single", tmp_path / "model")
    rows = open_model(folder).config.vocab_size
    change_config(folder, vocab_size=None)
    assert rows == open_model(folder).config.vocab_size
    change_config(folder, vocab_size=rows + 1)
    with pytest.raises(ModelError, match=f"it has {rows} embeddings, and config.json says {rows + 1} tokens"):
        open_model(folder)


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
    """A trained model, on 40 sentences."""
    half, single = (
        prepare_variant(open_model(minilm_export), variant, "cpu", cache_dir=minilm_export.parent / "cache")
        for variant in (ON_A_CPU, PaddedFloat32())
    )
    equal = labels_of(half, pud_windows[:40]) == labels_of(single, pud_windows[:40])
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
    require_answers(converted(folder), "bert", "single", window, LIMITS["fp16"])


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


def test_a_graph_that_needs_larger_numbers_does_not_pass_the_gate(
    minilm_export: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`prepare` converts, measures and chooses as on a GPU; nothing but the gate judges the conversion."""
    source = Path(shutil.copytree(minilm_export, tmp_path / "source"))
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
    assert not report.passed
    assert PaddedFloat32() == selection.choose([open_model(out)], "cpu", "auto").variant
    (graph,) = (out / "graphs").iterdir()
    assert PaddedFloat32().name in graph.name
    assert "fp32" == json.loads((out / "manifest.json").read_bytes())["precision"]
