"""Models that already are ONNX: run as they are, by every padded variant, and refused where they cannot be fed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from inference.conftest import REFERENCE, MakeWindow, change_config
from inference.exports import VARIANTS, change_export, prepare_export, write_export
from onnx import TensorProto, helper
from support.answers import WindowLabels, by_window
from tokenizers import Tokenizer, models

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.bert_weights import BERT_FAMILIES
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.checkpoint.onnx_model import OnnxModel, holds_onnx
from enricher.worker.inference.device.sessions import open_session
from enricher.worker.inference.graph.variants import Variant
from enricher.worker.inference.run.engine import NOT_FINITE, OnnxEngine
from enricher.worker.inference.run.model import open_model, prepare, prepare_variant
from enricher.worker.inference.run.selection import choose
from enricher.worker.inference.tokenizer.article_tokenizer import ArticleTokenizer
from enricher.worker.records import Batch, WindowFailure
from tools.bench.plain_export import export

PAIRS = [
    (family, each) for family in sorted(BERT_FAMILIES) for each in VARIANTS if "bert" == family or each == VARIANTS[-1]
]
"""Families whose exports are tried: a variant treats those of all alike."""
LIMITS = {"fp32": 1e-4, "bf16": 2e-2}


@pytest.mark.parametrize(("family", "variant"), PAIRS, ids=lambda each: each if isinstance(each, str) else each.name)
def test_an_exported_model_gives_its_own_logits(
    family: str, variant: Variant, tmp_path: Path, window: MakeWindow
) -> None:
    """Each family's plain export, and one by each variant of the padded layout, against PyTorch's logits."""
    checkpoint = open_model(write_export(family, None, tmp_path / "model"))
    reference = np.load(REFERENCE / family / "reference.npz")
    lengths = np.minimum(reference["lengths"], checkpoint.max_window_tokens)
    windows = [window(ids[:length].tolist()) for ids, length in zip(reference["input_ids"], lengths, strict=True)]
    model = prepare_variant(checkpoint, variant, "cpu", cache_dir=tmp_path / "cache")
    session = open_session(model.onnx_path, variant.runtime, threads_per_run=1)
    pad_id = checkpoint.config.pad_token_id or 0
    logits, labels = session.run(["logits", "labels"], model.variant.feeds(windows, pad_id))
    whole = lengths == reference["lengths"]  # a window that was cut has other logits
    for index in np.flatnonzero(whole):
        expected, got = reference["logits"][index, : lengths[index]], logits[index, : lengths[index]]
        assert np.abs(expected - got).max() < LIMITS[variant.precision] * np.abs(reference["logits"]).max()
        np.testing.assert_array_equal(got.argmax(-1), labels[index, : lengths[index]])


def test_int8_of_an_exported_model_is_refused_with_the_way_to_get_it(tmp_path: Path) -> None:
    """Its weights are somewhere in a graph that we do not know."""
    checkpoint = open_model(write_export("bert", None, tmp_path / "model"))
    reasons = {variant.name: why for variant, why in choose([checkpoint], "cpu", "auto").rejected}
    assert "this model is ONNX already: quantised by what is in a batch" in reasons["openvino-int8"]
    with pytest.raises(ModelError, match=r"int8 does not run here: .*prepare the checkpoint that it was exported from"):
        choose([checkpoint], "cpu", "int8")


def test_a_family_that_we_do_not_build_runs_from_its_export(tmp_path: Path, window: MakeWindow) -> None:
    """Without the export the checkpoint is refused, and the message names the way; with it, it runs."""
    folder = Path(shutil.copytree(REFERENCE / "bert", tmp_path / "model"))
    config = json.loads((folder / "config.json").read_bytes())
    other = {"model_type": "deberta", "architectures": ["DebertaForTokenClassification"]}
    (folder / "config.json").write_text(json.dumps(config | other))
    with pytest.raises(ModelError, match=r"Its export as ONNX runs, .*model\.onnx.*optimum-cli export onnx"):
        open_model(folder)
    export(Checkpoint.open(REFERENCE / "bert"), folder)
    prepared = prepare(folder, device="cpu", precision="auto", cache_dir=tmp_path / "cache")
    (answer,) = by_window(OnnxEngine(prepared, threads_per_run=1, pad_id=0).run(Batch((window([2, 10, 3]),))))
    assert isinstance(answer, WindowLabels)


def test_weights_that_are_listed_as_inputs_are_weights(tmp_path: Path, window: MakeWindow) -> None:
    """As exporters of old leave them."""

    def list_weights(model: onnx.ModelProto) -> None:
        for each in model.graph.initializer:
            model.graph.input.append(helper.make_tensor_value_info(each.name, each.data_type, each.dims))

    labels = []
    for name, change in (("plain", None), ("old", list_weights)):
        prepared = prepare_export(write_export("bert", None, tmp_path / name, change))
        engine = OnnxEngine(prepared, threads_per_run=1, pad_id=0)
        (answer,) = by_window(engine.run(Batch((window([2, 10, 11, 12, 3]),))))
        assert isinstance(answer, WindowLabels)
        labels.append(answer.labels.tolist())
    assert labels[0] == labels[1]


def test_a_window_with_logits_that_are_not_finite_fails(tmp_path: Path, window: MakeWindow) -> None:
    """The rule for NaN is the same as for graphs of our own."""
    folder = write_export("bert", None, tmp_path / "model")
    row = Checkpoint.open(REFERENCE / "bert").weight("bert.embeddings.word_embeddings.weight")[77]
    data = folder / "model.onnx.data"
    data.write_bytes(data.read_bytes().replace(row.tobytes(), np.full_like(row, np.nan).tobytes()))
    batch = Batch((window([2, 77, 3]), window([2, 9, 3])))
    bad, good = by_window(OnnxEngine(prepare_export(folder), threads_per_run=1, pad_id=0).run(batch))
    assert isinstance(good, WindowLabels)
    assert isinstance(bad, WindowFailure)
    assert bad.error_type == NOT_FINITE


def test_weights_that_we_can_build_from_are_preferred(tmp_path: Path) -> None:
    """A folder of the hub often has both; the graph of our own is faster."""
    folder = write_export("bert", None, tmp_path / "model")
    assert holds_onnx(folder)
    shutil.copy(REFERENCE / "bert" / "model.safetensors", folder)
    assert not holds_onnx(folder)
    (folder / "config.json").write_text((folder / "config.json").read_text().replace('"bert"', '"deberta"'))
    assert holds_onnx(folder)


def test_its_digest_covers_graph_weights_and_configuration(tmp_path: Path) -> None:
    """A change of one byte in any of them makes another model."""
    folder = write_export("bert", None, tmp_path / "model")
    digests = {OnnxModel.open(folder).digest}
    for name in ("config.json", "model.onnx", "model.onnx.data"):
        content = (folder / name).read_bytes()
        changed = content + b" " if name == "config.json" else content + b"\0" * (name != "model.onnx")
        (folder / name).write_bytes(changed if name != "model.onnx" else content.replace(b"main_graph", b"Main_graph"))
        digests.add(OnnxModel.open(folder).digest)
    assert len(digests) == 4


IDS_AND_MASK = ["input_ids", "attention_mask"]


@pytest.mark.parametrize(
    ("inputs", "shape", "logits", "message"),
    [
        (["input_ids", "pixel_values"], ["b", "l"], ["b", "l", 7], "its inputs are input_ids, pixel_values"),
        (IDS_AND_MASK, [1, 128], [1, 128, 7], "fixed size"),
        (IDS_AND_MASK, ["b", "l", "m"], ["b", "l", 7], "input_ids has 3 dimensions, not batch and length"),
        (IDS_AND_MASK, ["b", "l"], ["b", "l", 5], r"logits \[b, l, 5\].*it is for ner.*logits \[batch, length, 7\]"),
        (IDS_AND_MASK, ["b", "l"], ["b", 7], r"its outputs are logits \[b, 7\].*it is for ner"),
    ],
)
def test_a_model_that_cannot_be_fed_or_read_is_refused(
    inputs: list[str], shape: list[str | int], logits: list[str | int], message: str, tmp_path: Path
) -> None:
    """The message names what is wrong with it, such as that it judges whole texts."""
    shutil.copy(REFERENCE / "bert" / "config.json", tmp_path)
    values = [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name in inputs]
    outputs = [helper.make_tensor_value_info("logits", TensorProto.FLOAT, logits)]
    graph = helper.make_graph([helper.make_node("Cast", ["input_ids"], ["logits"], to=1)], "odd", values, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=message):
        prepare(tmp_path, device="cpu", precision="auto", cache_dir=tmp_path / "cache")


def test_a_configuration_need_not_say_more_than_the_labels(tmp_path: Path) -> None:
    """Positions are then as many as usual, and any token may come."""
    folder = write_export("bert", None, tmp_path / "model")
    labels = json.loads((folder / "config.json").read_bytes())["id2label"]
    (folder / "config.json").write_text(json.dumps({"id2label": labels, "max_position_embeddings": None}))
    Tokenizer(models.WordLevel({"[UNK]": 0, "a": 1}, unk_token="[UNK]")).save(str(folder / "tokenizer.json"))
    tokenizer = ArticleTokenizer(open_model(folder), max_article_tokens=9)
    assert (512, 0) == (tokenizer.max_window_tokens, tokenizer.pad_id)


def cut_short(folder: Path) -> None:
    """The end of a download is missing."""
    data = folder / "model.onnx.data"
    data.write_bytes(data.read_bytes()[:-1])


def put_weights_outside(folder: Path) -> None:
    """They would be read, and copied, from anywhere on the machine."""
    (folder / "model.onnx.data").rename(folder.parent / "model.onnx.data")

    def point_there(model: onnx.ModelProto) -> None:
        for tensor in model.graph.initializer:
            for entry in tensor.external_data:
                entry.value = "../model.onnx.data" if entry.key == "location" else entry.value

    change_export(folder, point_there)


def put_constant_outside(folder: Path) -> None:
    """A constant may be in any file, so its place is checked like that of other weights."""
    tensor = TensorProto(dims=[1], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="../secret")
    node = helper.make_node("Constant", [], ["secret"], value=tensor)
    change_export(folder, lambda model: model.graph.node.append(node))


def halve(folder: Path) -> None:
    """The weights are said to be in half precision."""

    def name_halves(model: onnx.ModelProto) -> None:
        for tensor in model.graph.initializer:
            tensor.data_type = TensorProto.FLOAT16 if tensor.data_type == TensorProto.FLOAT else tensor.data_type

    change_export(folder, name_halves)


def quantise(folder: Path) -> None:
    """There is a node that only quantised graphs have."""
    node = helper.make_node("DynamicQuantizeLinear", ["logits"], ["q", "scale", "zero"])
    change_export(folder, lambda model: model.graph.node.append(node))


BESIDE, TAKE_FP32 = "its weights must lie beside it, and", ".*Take the export in fp32, usually onnx/model.onnx"
NO_LABELS, COPY_AGAIN = "id2label must name a label for each number", "Copy it again, completely"
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
"""What a clone without its large files has."""


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda folder: (folder / "model.onnx").write_bytes(b""), COPY_AGAIN),
        (lambda folder: (folder / "model.onnx").write_bytes(POINTER), COPY_AGAIN),
        (cut_short, r"its weights end at byte \d+ of model\.onnx\.data, which has"),
        (lambda folder: (folder / "model.onnx.data").unlink(), r"weights missing: model\.onnx\.data"),
        (put_weights_outside, rf"{BESIDE} \.\./model\.onnx\.data does not"),
        (put_constant_outside, rf"{BESIDE} \.\./secret does not"),
        # No gate could compare these with anything, and records would say fp32.
        (halve, f"weights in half precision{TAKE_FP32}"),
        (quantise, f"is quantised{TAKE_FP32}"),
        # The graph says nothing of labels and limits.
        (lambda folder: change_config(folder, id2label=["O", "B-PER"]), NO_LABELS),
        (lambda folder: change_config(folder, id2label={"O": 0, "B-PER": 1}), NO_LABELS),
        (lambda folder: change_config(folder, max_position_embeddings="many"), "whole numbers"),
        (lambda folder: change_config(folder, vocab_size=[1]), "whole numbers"),
    ],
)
def test_a_folder_that_is_damaged_is_refused(damage: Callable[[Path], object], message: str, tmp_path: Path) -> None:
    """When it is opened, before anything of it runs."""
    folder = write_export("bert", None, tmp_path / "model")
    damage(folder)
    with pytest.raises(ModelError, match=message):
        open_model(folder)
