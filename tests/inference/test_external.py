"""Models that already are ONNX: run as they are, by every padded form, and refused where they cannot be fed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.answers import WindowLabels, by_window

from enricher.errors import ModelError
from enricher.inference.catalogue import forms_for
from enricher.inference.checkpoint import Checkpoint
from enricher.inference.device import open_session
from enricher.inference.engine import NOT_FINITE, OnnxEngine
from enricher.inference.families import FAMILIES
from enricher.inference.model import open_model, prepare, prepare_form
from enricher.inference.onnxfolder import OnnxModel, holds_onnx
from enricher.records import Batch, WindowFailure
from model_benchmark.plain import export

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from enricher.inference.forms import Form
    from enricher.records import Window

    MakeWindow = Callable[[Sequence[int]], Window]

REFERENCE = Path(__file__).parent.parent / "data" / "reference"
FORMS = [form for form in forms_for("cpu") if form.problem() is None]
LIMITS = {"fp32": 1e-4, "bf16": 2e-2, "int8": 1.0}


def exported(family: str, folder: Path, *, subfolder: str = "") -> Path:
    """A folder as an exporter leaves it: config.json and the ONNX file with its weights, no safetensors."""
    (folder / subfolder).mkdir(parents=True)
    shutil.copy(REFERENCE / family / "config.json", folder)
    export(Checkpoint.open(REFERENCE / family), folder / subfolder)
    return folder


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.name)
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_an_exported_model_gives_its_own_logits(family: str, form: Form, tmp_path: Path, window: MakeWindow) -> None:
    """Each family's plain export, by each form of the padded layout, against PyTorch's logits."""
    checkpoint = open_model(exported(family, tmp_path / "model"))
    reference = np.load(REFERENCE / family / "reference.npz")
    lengths = np.minimum(reference["lengths"], checkpoint.max_window_tokens)
    windows = [window(ids[:length].tolist()) for ids, length in zip(reference["input_ids"], lengths, strict=True)]
    model = prepare_form(checkpoint, form, "cpu", cache_dir=tmp_path / "cache")
    session = open_session(model.onnx_path, form.runtime, threads_per_run=1)
    pad_id = checkpoint.config.pad_token_id or 0
    logits, labels = session.run(["logits", "labels"], model.form.feeds(windows, pad_id))
    whole = lengths == reference["lengths"]  # a window that was cut has other logits
    for index in np.flatnonzero(whole):
        expected, got = reference["logits"][index, : lengths[index]], logits[index, : lengths[index]]
        assert np.abs(expected - got).max() < LIMITS[form.precision] * np.abs(reference["logits"]).max()
        np.testing.assert_array_equal(got.argmax(-1), labels[index, : lengths[index]])


def test_the_engine_runs_it_like_any_other(tmp_path: Path, window: MakeWindow) -> None:
    """Same labels and scores as our own graph of the same weights."""
    folder = exported("bert", tmp_path / "model", subfolder="onnx")
    windows = (window([2, 10, 11, 12, 3]), window([2, 9, 3]))
    results = []
    for source in (folder, REFERENCE / "bert"):
        prepared = prepare(source, device="cpu", precision="auto", cache_dir=tmp_path / "cache")
        assert prepared.card.precision == "fp32"
        engine = OnnxEngine(prepared, threads_per_run=1, pad_id=0)
        engine.warm_up()
        results.append(by_window(engine.run(Batch(windows))))
    for theirs, ours in zip(*results, strict=True):
        assert isinstance(theirs, WindowLabels)
        assert isinstance(ours, WindowLabels)
        np.testing.assert_array_equal(ours.labels, theirs.labels)
        np.testing.assert_allclose(ours.scores, theirs.scores, rtol=1e-5)


def test_a_window_with_logits_that_are_not_finite_fails(tmp_path: Path, window: MakeWindow) -> None:
    """The rule for NaN is the same as for graphs of our own."""
    folder = exported("bert", tmp_path / "model")
    model = onnx.load(str(folder / "model.onnx"))
    words = next(each for each in model.graph.initializer if each.name.endswith("word_embeddings.weight"))
    table = onnx.numpy_helper.to_array(words).copy()
    table[77] = np.nan
    words.CopyFrom(onnx.numpy_helper.from_array(table, words.name))
    onnx.save(model, str(folder / "model.onnx"))
    prepared = prepare(folder, device="cpu", precision="auto", cache_dir=tmp_path / "cache")
    batch = Batch((window([2, 77, 3]), window([2, 9, 3])))
    bad, good = by_window(OnnxEngine(prepared, threads_per_run=1, pad_id=0).run(batch))
    assert isinstance(good, WindowLabels)
    assert isinstance(bad, WindowFailure)
    assert bad.error_type == NOT_FINITE


def test_weights_that_we_can_build_from_are_preferred(tmp_path: Path) -> None:
    """A folder of the hub often has both; the graph of our own is faster."""
    folder = exported("bert", tmp_path / "model")
    assert holds_onnx(folder)
    shutil.copy(REFERENCE / "bert" / "model.safetensors", folder)
    assert not holds_onnx(folder)
    (folder / "config.json").write_text((folder / "config.json").read_text().replace('"bert"', '"deberta-v2"'))
    assert holds_onnx(folder)


def test_its_digest_covers_graph_weights_and_configuration(tmp_path: Path) -> None:
    """A change of one byte in any of them makes another model."""
    folder = exported("bert", tmp_path / "model")
    digests = {OnnxModel.open(folder).digest}
    for name in ("config.json", "model.onnx", "model.onnx.data"):
        content = (folder / name).read_bytes()
        changed = content + b" " if name == "config.json" else content + b"\0" * (name != "model.onnx")
        (folder / name).write_bytes(changed if name != "model.onnx" else content.replace(b"main_graph", b"Main_graph"))
        digests.add(OnnxModel.open(folder).digest)
    assert len(digests) == 4


@pytest.mark.parametrize(
    ("inputs", "shape", "labels", "message"),
    [
        (["input_ids", "pixel_values"], ["b", "l"], 7, "its inputs are input_ids, pixel_values"),
        (["input_ids", "attention_mask"], [1, 128], 7, "fixed size"),
        (["input_ids", "attention_mask"], ["b", "l"], 5, "5 values per token"),
    ],
)
def test_a_model_that_cannot_be_fed_or_read_is_refused(
    inputs: list[str], shape: list[str | int], labels: int, message: str, tmp_path: Path
) -> None:
    """The message names what is wrong with it."""
    shutil.copy(REFERENCE / "bert" / "config.json", tmp_path)
    values = [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name in inputs]
    logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [*shape, labels])
    graph = helper.make_graph([helper.make_node("Cast", ["input_ids"], ["logits"], to=1)], "odd", values, [logits])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(ModelError, match=message):
        prepare(tmp_path, device="cpu", precision="auto", cache_dir=tmp_path / "cache")


def test_weights_that_were_left_behind_are_named(tmp_path: Path) -> None:
    """A copy without the file beside the graph is refused before it is run."""
    folder = exported("bert", tmp_path / "model")
    (folder / "model.onnx.data").unlink()
    with pytest.raises(ModelError, match=r"weights missing: model\.onnx\.data"):
        open_model(folder)
