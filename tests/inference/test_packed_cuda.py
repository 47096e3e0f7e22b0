"""The packed variant: what is in its graph, what is fed to it, and what it computes, without a GPU.

Arithmetic is that of the built graph on numpy (packed_reference.py). The last tests run it on the real kernels, where
there is a GPU.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from inference import packed_reference
from inference.conftest import REFERENCE, MakeWindow, reference_of
from onnx import TensorProto
from support.answers import WindowLabels, by_window
from support.attention_kernels import UNFUSED, kernels_of
from support.head_references import HEADS, OUTPUTS, write_folder
from support.layout import rows_of
from support.models import open_minilm

from enricher.errors import ModelError
from enricher.worker.heads import reads_of
from enricher.worker.inference.checkpoint.bert_weights import BERT_FAMILIES
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.hardware import cuda_problem
from enricher.worker.inference.device.sessions import SESSION_ERRORS, open_session
from enricher.worker.inference.graph.builder import build
from enricher.worker.inference.graph.graph_files import OnnxWriter
from enricher.worker.inference.graph.packed_cuda import LONGEST_STEP_TOKENS, PackedCudaFloat32, PackedFloat16
from enricher.worker.inference.graph.padded import PaddedFloat32
from enricher.worker.inference.run.engine import OnnxEngine
from enricher.worker.inference.run.model import prepare_variant
from enricher.worker.inference.run.selection import variants_for
from enricher.worker.records import Batch, Window
from tools.bench.gpu.checkpoints import Shape, write_checkpoint

FP16, FP32 = PackedFloat16(), PackedCudaFloat32()
LIMITS = {"fp16": 2e-2, "fp32": 1e-4}
"""Largest difference of a logit allowed, relative to the largest one."""
RAGGED_TOKENS = (1, 2, 63, 64, 65, 130, 7, 100)
PUBLISHED = {"lengths": [1, 2, 4], "offsets": [0, 4, 5, 8, 9, 10, 11, 1, 2, 3, 6, 7], "cumulative": [0, 1, 3, 7]}
"""The example in the operator's documentation (ContribOperators.md), three windows padded to 4."""
ODD = Shape(
    model_type="bert",
    vocab_size=97,
    hidden_size=72,
    num_hidden_layers=1,
    num_attention_heads=3,
    intermediate_size=40,
    max_position_embeddings=130,
)
SHAPES = {
    "three heads of 24": ODD,
    "one head": replace(ODD, num_attention_heads=1),
    "heads of 5, which no fused kernel takes": replace(ODD, hidden_size=35, num_attention_heads=7),
    "five layers": replace(ODD, num_hidden_layers=5),
    "narrow embeddings": replace(ODD, model_type="electra", embedding_size=20),
    "no token types": replace(ODD, model_type="distilbert"),
    "positions after padding": replace(ODD, model_type="xlm-roberta", max_position_embeddings=132),
}


def graph_of(folder: Path, variant: PackedCudaFloat32, cache_dir: Path) -> Path:
    """The path of the graph of a checkpoint."""
    return prepare_variant(Checkpoint.open(folder), variant, "cuda", cache_dir=cache_dir).onnx_path


@pytest.mark.slow
def test_the_built_in_model_labels_gold_sentences_as_pytorch_does(pud_windows: list[Window], cache_dir: Path) -> None:
    """In float16 with the kernels' roundings, every 24th sentence; over all, 2 of 24,930 labels differ (measured)."""
    logits = np.split(
        np.load(REFERENCE / "pud_logits.npz")["logits"], np.cumsum([len(each.ids) for each in pud_windows])
    )
    expected = np.concatenate(logits[:-1][::24])
    path = prepare_variant(open_minilm(), FP16, "cuda", cache_dir=cache_dir).onnx_path
    found, labels = packed_reference.run(path, ["logits", "labels"], FP16.feeds(pud_windows[::24], pad_id=0))
    assert len(labels) > 1_000
    assert np.abs(expected - found).max() < 5e-3 * np.abs(expected).max()
    np.testing.assert_array_equal(expected.argmax(-1), labels)


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_any_depth_width_and_number_of_heads_is_computed_as_padded(
    shape: Shape, tmp_path: Path, window: MakeWindow
) -> None:
    """The padded variant runs on ONNX Runtime, and is held to PyTorch by test_graph.py."""
    checkpoint = Checkpoint.open(write_checkpoint(tmp_path / "odd", shape, spread=0.15))
    ids = np.random.default_rng(1).integers(2, shape.vocab_size, sum(RAGGED_TOKENS))
    windows = [window(part.tolist()) for part in np.split(ids, np.cumsum(RAGGED_TOKENS)[:-1])]
    padded = prepare_variant(checkpoint, PaddedFloat32(), "cpu", cache_dir=tmp_path / "cache")
    session = open_session(padded.onnx_path, "cpu", threads_per_run=1)
    (rows,) = session.run(["logits"], padded.variant.feeds(windows, pad_id=0))
    expected = np.concatenate(rows_of(padded.variant, rows, windows))
    for variant in (FP16, FP32):
        path = graph_of(checkpoint.folder, variant, tmp_path / "cache")
        (logits,) = packed_reference.run(path, ["logits"], variant.feeds(windows, pad_id=0))
        assert np.abs(expected - logits).max() < LIMITS[variant.precision] * np.abs(expected).max()


def test_the_stand_in_rounds_each_sum_of_skip_norm_and_each_step_of_gelu() -> None:
    """2,048 + 1 + 1 is 2,048 in half precision; GELU errs by up to 1.9e-3 below 4, where one rounding errs by 1e-3."""
    half, width = np.float16, 4
    ones, zeros = np.ones(width, half), np.zeros(width, half)
    value = np.array([[2048, 0, 0, 0]], half)
    summed = packed_reference.skip_norm(value, ones[None], ones, zeros, ones, epsilon=0.0)
    rounded = packed_reference.norm(np.array([[2048, 2, 2, 2]], half), ones, zeros, epsilon=0.0)
    np.testing.assert_array_equal(rounded, summed)
    given = np.arange(-4, 4, 1 / 512).astype(half)
    found = packed_reference.bias_gelu(given, np.zeros_like(given))
    exact = np.array([0.5 * each * (1 + math.erf(each / math.sqrt(2))) for each in given.tolist()])
    assert np.abs(exact - exact.astype(half)).max() < 1.1e-3
    assert 1.5e-3 < np.abs(exact - found).max() < 2.2e-3


@pytest.mark.parametrize("damage", ["cumulative_lengths", "position_ids", "token_offset"])
def test_the_comparison_catches_wrong_feeds(damage: str, cache_dir: Path, window: MakeWindow) -> None:
    """Windows that begin one token late, positions that do not restart, and offsets out of order: a negative control."""
    windows, expected = reference_of("bert", window)
    feeds = FP32.feeds(windows, pad_id=0)
    if damage == "cumulative_lengths":
        feeds[damage][1:-1] += 1
    elif damage == "position_ids":
        feeds[damage] = np.minimum(feeds[damage] + 1, 129)
    else:
        feeds[damage] = np.roll(feeds[damage].ravel(), 1).reshape(feeds[damage].shape)
    path = graph_of(REFERENCE / "bert", FP32, cache_dir)
    if damage == "position_ids":
        (logits,) = packed_reference.run(path, ["logits"], feeds)
        assert np.abs(expected - logits).max() > 1e-2 * np.abs(expected).max()
    else:
        with pytest.raises((AssertionError, ValueError)):
            packed_reference.run(path, ["logits"], feeds)


def test_the_operators_are_the_fused_ones_and_no_others(cache_dir: Path) -> None:
    """Per layer one attention, two skip norms, one GELU, six products and the query's bias; nothing about padding."""
    graph = onnx.load(str(graph_of(REFERENCE / "roberta", FP16, cache_dir)), load_external_data=False).graph
    layers = Checkpoint.open(REFERENCE / "roberta").config.layers
    expected = {
        "PackedMultiHeadAttention": layers,
        "SkipLayerNormalization": 2 * layers,
        "BiasGelu": layers,
        "MatMul": 6 * layers + 1,
        "Add": layers + 3,  # the query's bias; words and positions; the classifier's bias; the test for NaN
        "LayerNormalization": 1,
        "Gather": 2,
        "Cast": 2,  # the hidden state to float32, label ids to int32
        **dict.fromkeys(("ArgMax", "ReduceMax", "Exp", "ReduceSum", "Reciprocal"), 1),
        "Sub": 2,
    }
    assert expected == dict(Counter(node.op_type for node in graph.node))
    for node in graph.node:
        if node.op_type == "PackedMultiHeadAttention":
            assert ["", "token_offset", "cumulative_lengths"] == list(node.input)[3:]
            assert 3 == len(set(node.input[:3]))


def test_numbers_are_float16_up_to_the_classifier_and_float32_after_it(cache_dir: Path) -> None:
    """Every weight of the encoder is float16, and the one cast to float32 feeds the classifier's product."""
    graph = onnx.load(str(graph_of(REFERENCE / "bert", FP16, cache_dir)), load_external_data=False).graph
    halves = {each.name for each in graph.initializer if each.data_type == TensorProto.FLOAT16}
    floats = {each.name for each in graph.initializer if each.data_type == TensorProto.FLOAT}
    assert {"classifier.weight", "classifier.bias"} == floats
    assert "bert.embeddings.word_embeddings.weight" in halves
    (cast,) = (node for node in graph.node if node.op_type == "Cast" and "hidden.float32" in node.output)
    (product,) = (node for node in graph.node if "classifier.weight" in node.input)
    assert cast.output[0] in product.input
    outputs = {each.name: each.type.tensor_type.elem_type for each in graph.output}
    assert {"logits": TensorProto.FLOAT, "labels": TensorProto.INT32, "scores": TensorProto.FLOAT} == outputs
    for each in graph.output:
        assert "tokens" == each.type.tensor_type.shape.dim[0].dim_param


def test_onnx_runtime_accepts_the_graph_and_lacks_only_the_kernel(cache_dir: Path) -> None:
    """Types and shapes of every node are checked before kernels are looked for; the first one missing is attention's."""
    options = ort.SessionOptions()
    options.log_severity_level = 4
    path = graph_of(REFERENCE / "xlm-roberta", FP32, cache_dir)
    with pytest.raises(SESSION_ERRORS, match=r"implementation for PackedMultiHeadAttention"):
        ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def test_offsets_are_laid_out_as_the_operators_documentation_says(
    window: MakeWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The example of ContribOperators.md: places of real tokens first, then those of the padding."""
    monkeypatch.setattr("enricher.worker.inference.graph.packed_cuda.LONGEST_STEP_TOKENS", 4)
    feeds = FP16.feeds([window([5] * length) for length in PUBLISHED["lengths"]], pad_id=0)
    assert PUBLISHED["offsets"] == feeds["token_offset"].ravel().tolist()
    assert PUBLISHED["cumulative"] == feeds["cumulative_lengths"].tolist()
    assert [0, 0, 1, 0, 1, 2, 3] == feeds["position_ids"].tolist()


def test_feeds_hold_the_real_tokens_and_nothing_else(window: MakeWindow) -> None:
    """Every array is int32 and contiguous, and only the shape of the offsets is rounded up."""
    lengths = [3, 130, 1]
    windows = [window(list(range(10, 10 + length))) for length in lengths]
    feeds = FP16.feeds(windows, pad_id=0)
    assert all(array.dtype == np.int32 and array.flags.c_contiguous for array in feeds.values())
    assert sum(lengths) == len(feeds["input_ids"]) == len(feeds["position_ids"]) == FP16.padded_tokens(windows)
    assert (3, 3 * LONGEST_STEP_TOKENS) == feeds["token_offset"].shape
    assert list(range(9 * LONGEST_STEP_TOKENS)) == sorted(feeds["token_offset"].ravel().tolist())


def test_a_weight_beyond_float16_is_refused_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be infinite, and every score of the model NaN; the message says what to choose instead."""
    checkpoint = Checkpoint.open(write_checkpoint(tmp_path / "large", ODD))
    read = Checkpoint.weight
    monkeypatch.setattr(
        Checkpoint, "weight", lambda self, name, *_: read(self, name) * (1e7 if ".0.output.dense" in name else 1)
    )
    with pytest.raises(ModelError, match=r"layer\.0\.output\.dense\.(weight|bias) reaches .*float16.*fp32"):
        prepare_variant(checkpoint, FP16, "cuda", cache_dir=tmp_path / "cache")
    assert prepare_variant(checkpoint, FP32, "cuda", cache_dir=tmp_path / "cache").onnx_path.is_file()


def test_no_two_graphs_have_the_same_name() -> None:
    """Graphs and reports are found by it. Only the padded float32 graph runs on both devices."""
    variants = [*variants_for("cpu"), *variants_for("cuda")]
    assert len({type(variant) for variant in variants}) == len({variant.name for variant in variants})


on_gpu = pytest.mark.skipif(cuda_problem() is not None, reason="no GPU that can be used")
GPU_LIMITS = {"fp16": 2e-2, "fp32": 1e-3}
"""Largest difference of a logit allowed, relative to the largest. In float32, only attention's products use TF32, three for
each (packed_cuda.py)."""
VARIANTS = {variant.precision: variant for variant in (FP16, FP32)}


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("precision", sorted(GPU_LIMITS))
@pytest.mark.parametrize("family", sorted(BERT_FAMILIES))
def test_the_real_kernels_give_the_reference_logits(
    family: str, precision: str, cache_dir: Path, window: MakeWindow
) -> None:
    """In one batch of lengths from 1 to the maximum; labels differ only where two logits are within the tolerance."""
    windows, expected = reference_of(family, window)
    variant = VARIANTS[precision]
    path = prepare_variant(Checkpoint.open(REFERENCE / family), variant, "cuda", cache_dir=cache_dir).onnx_path
    session = open_session(path, "cuda", threads_per_run=1)
    logits, labels, scores = session.run(["logits", "labels", "scores"], variant.feeds(windows, pad_id=0))
    largest, limit = np.abs(expected).max(), GPU_LIMITS[precision]
    assert np.isfinite(scores).all()
    assert np.abs(expected - logits).max() < limit * largest
    gap = np.diff(np.sort(expected, axis=-1)[:, -2:], axis=-1)[:, 0]
    assert (gap[labels != expected.argmax(-1)] < 2 * limit * largest).all()


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("precision", sorted(GPU_LIMITS))
def test_attention_is_fused_in_every_layer(precision: str, pud_windows: list[Window], cache_dir: Path) -> None:
    """ONNX Runtime names its kernels: one per layer, and none of them is the unfused one, though windows are short."""
    checkpoint, variant = open_minilm(), VARIANTS[precision]
    path = prepare_variant(checkpoint, variant, "cuda", cache_dir=cache_dir).onnx_path
    kernels = kernels_of(path, variant.feeds(pud_windows[:64], pad_id=0))
    assert UNFUSED not in kernels
    assert sum(kernels.values()) >= checkpoint.config.layers


@pytest.mark.gpu
@on_gpu
def test_the_engine_answers_as_the_reference_does(pud_windows: list[Window], cache_dir: Path) -> None:
    """All gold sentences of newswire-minilm on two threads' session: at least 99.9 % of labels are PyTorch's."""
    model = prepare_variant(open_minilm(), FP16, "cuda", cache_dir=cache_dir)
    engine = OnnxEngine(model, threads_per_run=1, pad_id=0, concurrency=2)
    engine.warm_up()
    results = [
        result
        for first in range(0, len(pud_windows), 64)
        for result in by_window(engine.run(Batch(tuple(pud_windows[first : first + 64]))))
    ]
    assert all(isinstance(result, WindowLabels) for result in results)
    labels = np.concatenate([result.labels for result in results if isinstance(result, WindowLabels)])
    expected = np.load(REFERENCE / "pud_logits.npz")["logits"].argmax(-1)
    assert (labels == expected).mean() > 0.999


@pytest.mark.gpu
@on_gpu
@pytest.mark.parametrize("family", sorted(BERT_FAMILIES))
def test_every_head_of_a_pass_says_what_transformers_says(family: str, tmp_path: Path, window: MakeWindow) -> None:
    """Classes and vectors of windows of 1 to 130 tokens, in one batch; test_graph.py runs the same graph on numpy."""
    checkpoints = [Checkpoint.open(write_folder(family, head, tmp_path / head)) for head in HEADS]
    reads, variant = reads_of([each.head for each in checkpoints]), FP16
    with (tmp_path / "model.weights").open("wb") as weights:
        model = build(checkpoints, variant, OnnxWriter(weights, "model.weights"))
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    session = open_session(tmp_path / "model.onnx", "cuda", threads_per_run=1)
    (windows, _), expected = reference_of(family, window), np.load(OUTPUTS / f"{family}.npz")
    outputs = session.run([f"head.{index}.rows" for index in range(len(HEADS))], variant.feeds(windows, 0, reads))
    for head, output in zip(HEADS, outputs, strict=True):
        np.testing.assert_allclose(output, expected[f"ragged.{head}"], rtol=0, atol=GPU_LIMITS["fp16"])
