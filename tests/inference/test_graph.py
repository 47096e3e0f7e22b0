"""The graphs say what PyTorch says: every variant for every family, and the model of the tests in mixed batches.

`scripts/test tests/inference/test_graph.py -s` prints the table.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from inference.conftest import REFERENCE, MakeWindow, reference_of
from support.layout import rows_of

from enricher.worker.inference.checkpoint.configuration import FAMILIES
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.sessions import open_session
from enricher.worker.inference.graph.padded import PackedFloat32, PaddedFloat32
from enricher.worker.inference.graph.variants import Variant
from enricher.worker.inference.run.model import PreparedModel, prepare_variant
from enricher.worker.inference.run.selection import variants_for
from enricher.worker.records import Float32Array, Window

VARIANTS = [variant for variant in variants_for("cpu") if variant.problem() is None and not variant.quantised]
"""int8 is compared with float32 by its calibration and by its gate."""
LIMITS = {"fp32": 1e-4, "bf16": 2e-2}
"""Largest difference of a logit allowed, relative to the largest one."""


@dataclass(frozen=True, slots=True)
class Row:
    """One family in one variant."""

    largest_difference: float
    other_labels: int
    tokens: int


@pytest.fixture(scope="module")
def table() -> Iterator[dict[tuple[str, str], Row]]:
    """Filled by the tests, printed when they are through."""
    rows: dict[tuple[str, str], Row] = {}
    yield rows
    print(f"\n{'family':<12} {'variant':<14} {'largest difference':>18}  labels that differ")
    for (family, variant), row in sorted(rows.items()):
        print(f"{family:<12} {variant:<14} {row.largest_difference:>18.1e}  {row.other_labels} of {row.tokens}")


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_variant_gives_the_reference_logits_of_a_family(
    family: str, variant: Variant, cache_dir: Path, window: MakeWindow, table: dict[tuple[str, str], Row]
) -> None:
    """In one batch of lengths from 1 to the maximum; labels differ only where two logits are within the tolerance."""
    windows, expected = reference_of(family, window)
    logits, labels, scores = answers(family, variant, windows, cache_dir)
    assert all(np.isfinite(each).all() for each in (logits, scores))
    largest, limit = np.abs(expected).max(), LIMITS[variant.precision]
    assert np.abs(highest_probability(expected) - scores).max() < limit * largest
    difference, other = float(np.abs(expected - logits).max() / largest), labels != expected.argmax(-1)
    table[family, variant.name] = Row(difference, int(other.sum()), len(labels))
    assert difference < limit
    gap = np.diff(np.sort(expected, axis=-1)[:, -2:], axis=-1)[:, 0]
    assert (gap[other] < 2 * limit * largest).all()


def test_the_lengths_compared_reach_from_one_token_to_the_most(window: MakeWindow) -> None:
    """Guards the table against reference batches that became even."""
    for family in FAMILIES:
        lengths = [each.length_tokens for each in reference_of(family, window)[0]]
        longest = min(Checkpoint.open(REFERENCE / family).max_window_tokens, 130)
        assert (1, longest) == (min(lengths), max(lengths))


def answers(family: str, variant: Variant, windows: list[Window], cache_dir: Path) -> list[Float32Array]:
    """Logits, labels and scores of all tokens of one batch."""
    model = prepare_variant(Checkpoint.open(REFERENCE / family), variant, "cpu", cache_dir=cache_dir)
    session = open_session(model.onnx_path, variant.runtime, threads_per_run=1)
    outputs = session.run(["logits", "labels", "scores"], variant.feeds(windows, pad_id=0))
    return [np.concatenate(rows_of(variant, output, windows)) for output in outputs]


def highest_probability(logits: Float32Array) -> Float32Array:
    """The softmax's largest share, by row."""
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    probability: Float32Array = powers.max(-1) / powers.sum(-1)
    return probability


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
    slots = variant.feeds(windows[::-1], pad_id=0)["slots"]
    assert [0, 3, 4, 5] == slots.tolist(), "as the padded layout says, not where the first window ends"
