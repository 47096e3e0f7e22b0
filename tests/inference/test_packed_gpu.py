"""The packed variant on a real GPU; skipped without one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from inference.conftest import REFERENCE, MakeWindow, reference_of
from onnx import TensorProto, helper
from support.answers import WindowLabels, by_window
from support.attention_kernels import UNFUSED, kernels_of
from support.head_references import HEADS, OUTPUTS, write_folder
from support.models import open_minilm

from enricher.errors import ModelError
from enricher.worker.heads import reads_of
from enricher.worker.inference.checkpoint.bert_weights import BERT_FAMILIES
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.hardware import cuda_problem
from enricher.worker.inference.device.sessions import open_session
from enricher.worker.inference.graph.builder import build
from enricher.worker.inference.graph.graph_files import OnnxWriter
from enricher.worker.inference.graph.packed_cuda import PackedCudaFloat32, PackedFloat16
from enricher.worker.inference.run.engine import OnnxEngine
from enricher.worker.inference.run.model import prepare_variant
from enricher.worker.records import Batch, Window

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(cuda_problem() is not None, reason="no GPU that can be used")]
LIMITS = {"fp16": 2e-2, "fp32": 1e-3}
"""Largest difference of a logit allowed, relative to the largest. In float32, only attention's products use TF32, three for
each (packed_cuda.py)."""
VARIANTS = {"fp16": PackedFloat16(), "fp32": PackedCudaFloat32()}


@pytest.mark.parametrize("precision", sorted(LIMITS))
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
    largest, limit = np.abs(expected).max(), LIMITS[precision]
    assert np.isfinite(scores).all()
    assert np.abs(expected - logits).max() < limit * largest
    gap = np.diff(np.sort(expected, axis=-1)[:, -2:], axis=-1)[:, 0]
    assert (gap[labels != expected.argmax(-1)] < 2 * limit * largest).all()


@pytest.mark.parametrize("precision", sorted(LIMITS))
def test_attention_is_fused_in_every_layer(precision: str, pud_windows: list[Window], cache_dir: Path) -> None:
    """ONNX Runtime names its kernels: one per layer, and none of them is the unfused one, though windows are short."""
    checkpoint, variant = open_minilm(), VARIANTS[precision]
    path = prepare_variant(checkpoint, variant, "cuda", cache_dir=cache_dir).onnx_path
    kernels = kernels_of(path, variant.feeds(pud_windows[:64], pad_id=0))
    assert UNFUSED not in kernels
    assert sum(kernels.values()) >= checkpoint.config.layers


def test_the_engine_answers_as_the_reference_does(pud_windows: list[Window], cache_dir: Path) -> None:
    """All gold sentences of newswire-minilm on two threads' session: at least 99.9 % of labels are PyTorch's."""
    model = prepare_variant(open_minilm(), PackedFloat16(), "cuda", cache_dir=cache_dir)
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


def test_a_node_that_cuda_lacks_is_refused() -> None:
    """Between two that it has. Only a model that says so may have such nodes, and then it runs."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 2]) for name in ("x", "y")]
    operators = [("Exp", "x", "e"), ("Det", "e", "d"), ("Mul", "e", "y")]
    nodes = [
        helper.make_node(name, [taken, "d"] if name == "Mul" else [taken], [made]) for name, taken, made in operators
    ]
    graph = helper.make_graph(nodes, "mixed", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10).SerializeToString()
    with pytest.raises(ModelError, match="nodes that are assigned to the default CPU EP"):
        open_session(model, "cuda", threads_per_run=1)
    session = open_session(model, "cuda", threads_per_run=1, cpu_nodes=True)
    (answer,) = session.run(["y"], {"x": np.diag(np.log([2, 3])).astype(np.float32)})
    np.testing.assert_allclose(answer, [[10, 5], [5, 15]], rtol=1e-5)


@pytest.mark.parametrize("family", sorted(BERT_FAMILIES))
def test_every_head_of_a_pass_says_what_transformers_says(family: str, tmp_path: Path, window: MakeWindow) -> None:
    """Classes and vectors of windows of 1 to 130 tokens, in one batch; test_heads.py runs the same graph on numpy."""
    checkpoints = [Checkpoint.open(write_folder(family, head, tmp_path / head)) for head in HEADS]
    reads, variant = reads_of([each.head for each in checkpoints]), PackedFloat16()
    with (tmp_path / "model.weights").open("wb") as weights:
        model = build(checkpoints, variant, OnnxWriter(weights, "model.weights"))
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    session = open_session(tmp_path / "model.onnx", "cuda", threads_per_run=1)
    (windows, _), expected = reference_of(family, window), np.load(OUTPUTS / f"{family}.npz")
    outputs = session.run([f"head.{index}.rows" for index in range(len(HEADS))], variant.feeds(windows, 0, reads))
    for head, output in zip(HEADS, outputs, strict=True):
        np.testing.assert_allclose(output, expected[f"ragged.{head}"], rtol=0, atol=LIMITS["fp16"])
