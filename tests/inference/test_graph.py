"""The graphs say what transformers and PyTorch say."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from inference.conftest import REFERENCE, MakeWindow
from support.layout import rows_of

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.configuration import FAMILIES
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.sessions import open_session
from enricher.worker.inference.graph.padded import PackedFloat32, PaddedFloat32
from enricher.worker.inference.run.model import PreparedModel, prepare, prepare_variant
from enricher.worker.records import Window


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_each_family_gives_the_logits_of_its_reference(family: str, cache_dir: Path) -> None:
    """Float32 logits at real positions agree with PyTorch's to 1e-4 of the largest, in a batch of very mixed lengths."""
    model = prepare_variant(Checkpoint.open(REFERENCE / family), PaddedFloat32(), "cpu", cache_dir=cache_dir)
    expected = np.load(REFERENCE / family / "reference.npz")
    session = open_session(model.onnx_path, "cpu", threads_per_run=1)
    feeds = {"input_ids": expected["input_ids"].astype(np.int32), "lengths": expected["lengths"].astype(np.int32)}
    logits, labels, scores = session.run(["logits", "labels", "scores"], feeds)
    real = expected["attention_mask"].astype(bool)
    difference = np.abs(expected["logits"] - logits)[real].max()
    assert difference < 1e-4 * np.abs(expected["logits"]).max()
    np.testing.assert_array_equal(expected["logits"].argmax(-1)[real], labels[real])
    np.testing.assert_allclose(_highest_probability(expected["logits"])[real], scores[real], rtol=1e-4)


@pytest.mark.parametrize("damage", ["positions", "mask"])
def test_the_comparison_catches_a_wrong_graph(damage: str, tmp_path: Path) -> None:
    """Positions that begin one too late, or a mask that is ignored, are far outside the tolerance: a negative control."""
    folder = Path(shutil.copytree(REFERENCE / "roberta", tmp_path / "damaged"))
    expected = np.load(folder / "reference.npz")
    ids, lengths = expected["input_ids"].astype(np.int32), expected["lengths"].astype(np.int32)
    if damage == "mask":
        lengths = np.full_like(lengths, ids.shape[1])
    else:
        config = (folder / "config.json").read_text()
        (folder / "config.json").write_text(config.replace('"pad_token_id": 1', '"pad_token_id": 2'))
    model = prepare_variant(Checkpoint.open(folder), PaddedFloat32(), "cpu", cache_dir=tmp_path / "cache")
    session = open_session(model.onnx_path, "cpu", threads_per_run=1)
    (logits,) = session.run(["logits"], {"input_ids": ids, "lengths": lengths})
    real = expected["attention_mask"].astype(bool)
    assert np.abs(expected["logits"] - logits)[real].max() > 1e-2 * np.abs(expected["logits"]).max()


@pytest.mark.parametrize("every", [8, pytest.param(1, marks=pytest.mark.long)])
def test_the_embedded_model_gives_its_reference_logits_in_mixed_batches(
    minilm: PreparedModel, pud_windows: list[Window], every: int
) -> None:
    """Gold sentences, batched as they come and so padded unevenly, agree with PyTorch alone to 1e-3."""
    expected = np.split(
        np.load(REFERENCE / "pud_logits.npz")["logits"], np.cumsum([len(w.ids) for w in pud_windows])[:-1]
    )
    session = open_session(minilm.onnx_path, "cpu", threads_per_run=1)
    worst = 0.0
    for first in range(0, len(pud_windows), 16 * every):
        windows = pud_windows[first : first + 16]
        (logits,) = session.run(["logits"], minilm.variant.feeds(windows, pad_id=0))
        for row, reference in zip(rows_of(minilm.variant, logits, windows), expected[first : first + 16], strict=True):
            worst = max(worst, float(np.abs(reference - row[: len(reference)]).max()))
    assert worst < 1e-3


def test_the_graph_is_made_of_the_fused_operators_and_no_others(minilm: PreparedModel) -> None:
    """Per layer: one attention, two skip norms, one GELU, six products; nothing was left to a pattern matcher."""
    graph = onnx.load(str(minilm.onnx_path), load_external_data=False).graph
    layers = minilm.checkpoint.config.layers
    counts = Counter(node.op_type for node in graph.node)
    expected = {
        "MultiHeadAttention": layers,
        "SkipLayerNormalization": 2 * layers,
        "BiasGelu": layers,
        "MatMul": 6 * layers + 1,
    }
    assert expected == {name: counts[name] for name in expected}


def test_a_weight_of_another_shape_than_the_configuration_says_is_refused(tmp_path: Path) -> None:
    """A config.json that belongs to other weights is named as the reason, not found out by a wrong answer."""
    folder = tmp_path / "mixed"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes((REFERENCE / "roberta" / "model.safetensors").read_bytes())
    config = (REFERENCE / "roberta" / "config.json").read_text()
    (folder / "config.json").write_text(config.replace('"vocab_size": 260', '"vocab_size": 261'))
    assert Checkpoint.open(folder).config.vocab_size == 261
    with pytest.raises(ModelError, match=r"\(260, 64\), not \(261, 64\)"):
        prepare(folder, device="cpu", precision="fp32", cache_dir=tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


def _highest_probability(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    probability: np.ndarray = powers.max(-1) / powers.sum(-1)
    return probability


def test_tokens_stand_in_a_row_and_know_their_place(window: MakeWindow) -> None:
    """Windows of 3 and 1 tokens: padding repeats a window's own first token."""
    variant, windows = PackedFloat32(), [window([2, 9, 3]), window([7])]
    feeds = {name: value.tolist() for name, value in variant.feeds(windows, pad_id=0).items()}
    assert feeds == {
        "input_ids": [2, 9, 3, 7],
        "position_ids": [0, 1, 2, 0],
        "slots": [0, 1, 2, 3],
        "rows": [[0, 1, 2], [3, 3, 3]],
        "lengths": [3, 1],
    }
    assert 4 == variant.padded_tokens(windows)
    assert [0, 3] == list(variant.starts(windows, (4,)))


def test_slots_skip_padding(window: MakeWindow) -> None:
    """The second window begins where the padded layout says, not where the first one ends."""
    feeds = PackedFloat32().feeds([window([7]), window([2, 9, 3])], pad_id=0)
    assert [0, 3, 4, 5] == feeds["slots"].tolist()
    assert [[0, 0, 0], [1, 2, 3]] == feeds["rows"].tolist()


def test_a_window_that_is_not_finite_spoils_no_other(window: MakeWindow, tmp_path: Path) -> None:
    """Not even the ones behind it that are padded: masked places still take part in sums, as 0 x NaN."""
    checkpoint = Checkpoint.open(REFERENCE / "bert")
    model = prepare_variant(checkpoint, PackedFloat32(), "cpu", cache_dir=tmp_path)
    row = checkpoint.weight("bert.embeddings.word_embeddings.weight")[77]
    weights = model.onnx_path.parent / "model.weights"
    weights.write_bytes(weights.read_bytes().replace(row.tobytes(), np.full_like(row, np.nan).tobytes()))
    session = open_session(model.onnx_path, "cpu", threads_per_run=1)
    windows = [window([77, 5, 3]), window([2])]
    (scores,) = session.run(["scores"], model.variant.feeds(windows, 0))
    bad, good = scores[:3], scores[3:]
    assert np.isnan(bad).all()
    assert np.isfinite(good).all()
