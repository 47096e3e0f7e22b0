"""The graphs say what PyTorch and transformers say: every variant, for every family, with one head and with several."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from inference import packed_reference
from inference.conftest import MakeWindow, parts_of, reference_of
from support.head_references import ARTICLES_TOKENS, FAMILIES, HEADS, OUTPUTS, REFERENCE, articles, write_folder
from support.layout import rows_of

from enricher.worker.heads import reads_of
from enricher.worker.heads.head import pool
from enricher.worker.inference.checkpoint.bert_weights import BERT_FAMILIES
from enricher.worker.inference.checkpoint.configuration import FAMILIES as BUILT
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.sessions import open_session
from enricher.worker.inference.graph.builder import build
from enricher.worker.inference.graph.graph_files import OnnxWriter
from enricher.worker.inference.graph.packed_cuda import PackedCudaFloat32, PackedFloat16
from enricher.worker.inference.graph.padded import PackedFloat32, PaddedFloat32
from enricher.worker.inference.graph.variants import Variant
from enricher.worker.inference.run.model import PreparedModel, prepare_variant
from enricher.worker.inference.run.selection import variants_for
from enricher.worker.records import Float32Array, OwnedRow, Window

VARIANTS = [variant for variant in variants_for("cpu") if variant.problem() is None and not variant.quantised]
"""int8 is compared with float32 by its calibration and by its gate."""
LIMITS = {"fp32": 1e-4, "bf16": 2e-2}
"""Largest difference of a logit allowed, relative to the largest one."""


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
@pytest.mark.parametrize("family", ["bert", "deberta-v2", "modernbert"])
def test_a_variant_gives_the_reference_logits_of_each_encoder(
    family: str, variant: Variant, cache_dir: Path, window: MakeWindow
) -> None:
    """In one batch of lengths from 1 to the most; labels differ only where two logits are within the tolerance.

    A pass of several heads, below, has the logits of every family.
    """
    windows, expected = reference_of(family, window)
    logits, labels, scores = answers(family, variant, windows, cache_dir)
    assert all(np.isfinite(each).all() for each in (logits, scores))
    largest, limit = np.abs(expected).max(), LIMITS[variant.precision]
    assert np.abs(highest_probability(expected) - scores).max() < limit * largest
    assert np.abs(expected - logits).max() < limit * largest
    gap = np.diff(np.sort(expected, axis=-1)[:, -2:], axis=-1)[:, 0]
    assert (gap[labels != expected.argmax(-1)] < 2 * limit * largest).all()


def test_the_lengths_compared_reach_from_one_token_to_the_most(window: MakeWindow) -> None:
    """Guards the table against reference batches that became even."""
    for family in BUILT:
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


Run = Callable[[list[str], Sequence[Window]], list[Any]]

CUDA = [PackedCudaFloat32(), PackedFloat16()]
"""On numpy: the same graphs."""
LOGITS = {"fp32": 1e-4, "bf16": 5e-2, "fp16": 2e-2}
VECTORS = {"fp32": 1e-5, "bf16": 8e-2, "fp16": 2e-2}
"""Largest difference allowed."""


@dataclass(frozen=True, slots=True)
class Pass:
    """Heads over one encoder, in one variant."""

    checkpoints: list[Checkpoint]
    variant: Variant
    run: Run

    def rows(self, windows: list[Window], batches: Sequence[int]) -> dict[str, Float32Array]:
        """`float32 [windows, values]` by head, run in batches of these sizes, the last of which repeats."""
        names = [f"head.{index}.rows" for index in range(1, 1 + len(HEADS))]
        parts = [self.run(names, part) for part in parts_of(windows, batches)]
        return {head: np.concatenate(each) for head, each in zip(HEADS, zip(*parts, strict=True), strict=True)}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, list[Checkpoint]]:
    """By family: its NER checkpoint, then one for each of `HEADS`."""
    place = tmp_path_factory.mktemp("heads")
    return {
        family: [
            Checkpoint.open(REFERENCE / family),
            *(Checkpoint.open(write_folder(family, head, place / family / head)) for head in HEADS),
        ]
        for family in FAMILIES
    }


def made(
    checkpoints: list[Checkpoint], variant: Variant, folder: Path, replaced: dict[bytes, bytes] | None = None
) -> Pass:
    """The graph of all heads, opened; `replaced`: bytes of its weights, each of which occurs once, and others instead."""
    path, weights = folder / "model.onnx", folder / "model.weights"
    with weights.open("wb") as file:
        path.write_bytes(build(checkpoints, variant, OnnxWriter(file, "model.weights")).SerializeToString())
    for old, new in (replaced or {}).items():
        content = weights.read_bytes()
        assert 1 == content.count(old)
        weights.write_bytes(content.replace(old, new))
    reads = reads_of([each.head for each in checkpoints])
    on_numpy = variant.runtime == "cuda"
    run = packed_reference.opened(path) if on_numpy else open_session(path, variant.runtime, threads_per_run=1).run
    return Pass(checkpoints, variant, lambda names, windows: run(names, variant.feeds(windows, 0, reads)))


def limit(variant: Variant, head: str) -> float:
    """Of the largest difference."""
    return (VECTORS if head in {"mean", "cls"} else LOGITS)[variant.precision]


@pytest.mark.parametrize(
    ("family", "variant"),
    [(family, each) for family in FAMILIES for each in (*VARIANTS, *(CUDA if family in BERT_FAMILIES else ()))],
    ids=lambda each: getattr(each, "name", each),
)
def test_every_head_of_a_pass_says_what_transformers_says(
    family: str, variant: Variant, folders: Mapping[str, list[Checkpoint]], window: MakeWindow, tmp_path: Path
) -> None:
    """Whatever the batch: all windows together, alone, and in others; entities beside classes and vectors."""
    expected, (windows, of_tokens) = np.load(OUTPUTS / f"{family}.npz"), reference_of(family, window)
    served = made(folders[family], variant, tmp_path)
    for batches in ([8], [1], [3, 4, 1]):
        for head, rows in served.rows(windows, batches).items():
            np.testing.assert_allclose(
                rows, expected[f"ragged.{head}"], rtol=0, atol=limit(variant, head), err_msg=f"{head} {batches}"
            )
    (logits,) = served.run(["head.0.logits"], windows)
    difference = np.abs(of_tokens - np.concatenate(rows_of(variant, logits, windows))).max()
    assert difference < {"fp32": 1e-4, "bf16": 2e-2, "fp16": 2e-2}[variant.precision] * np.abs(of_tokens).max()


@pytest.mark.parametrize(
    ("family", "variant"),
    [*(("bert", variant) for variant in (*VARIANTS, CUDA[0])), *((family, PaddedFloat32()) for family in FAMILIES[1:])],
    ids=lambda each: getattr(each, "name", each),
)
def test_articles_of_1_3_and_40_windows_follow_the_formula(
    family: str, variant: Variant, folders: Mapping[str, list[Checkpoint]], tmp_path: Path
) -> None:
    """Windows of all three in mixed batches; the reference is a mean over tokens, each as its own window gave it."""
    expected, cuts = np.load(OUTPUTS / f"{family}.npz"), articles()
    served = made(folders[family], variant, tmp_path)
    windows = [window for cut in cuts.values() for window in cut.windows]
    mixed = windows[::3] + windows[1::3] + windows[2::3]
    rows = served.rows(mixed, [7])
    for head in HEADS:
        at = dict(zip(map(id, mixed), rows[head], strict=True))
        by_window = np.stack([at[id(each)] for each in windows])
        np.testing.assert_allclose(by_window, expected[f"windows.{head}"], rtol=0, atol=limit(variant, head))
        for number, count in enumerate(ARTICLES_TOKENS):
            owned = [
                OwnedRow(each.own_start, each.own_stop - each.own_start, at[id(each)])
                for each in reversed(cuts[count].windows)
            ]
            np.testing.assert_allclose(
                pool(owned, "mean"), expected[f"articles.{head}"][number], rtol=0, atol=limit(variant, head)
            )


@pytest.mark.parametrize("variant", [*VARIANTS, *CUDA], ids=lambda variant: variant.name)
def test_a_window_that_is_not_finite_spoils_no_other_row(
    variant: Variant, folders: Mapping[str, list[Checkpoint]], window: MakeWindow, tmp_path: Path
) -> None:
    """Means are products with zeros, and 0 x NaN is NaN: they must not reach beyond a window, nor must padding."""
    kind = np.float16 if variant.precision == "fp16" else np.float32
    row = folders["bert"][0].weight("bert.embeddings.word_embeddings.weight")[77].astype(kind)
    served = made(folders["bert"], variant, tmp_path, {row.tobytes(): np.full_like(row, np.nan).tobytes()})
    windows = [window([2, 9, 3]), window([2, 77, 5, 3]), window([2, 8, 8, 8, 8, 3]), window([2, 3])]
    scores, *outputs = served.run(["head.0.scores", *(f"head.{index}.rows" for index in range(1, 5))], windows)
    for rows in (*outputs, [each[:, None].mean(axis=0) for each in rows_of(variant, scores, windows)]):
        assert [True, False, True, True] == np.isfinite(rows).all(axis=1).tolist()


def test_a_window_that_owns_nothing_has_a_mean_of_zeros(
    folders: Mapping[str, list[Checkpoint]], window: MakeWindow, tmp_path: Path
) -> None:
    """Padding, which warms the device up, must not divide by zero."""
    variants: list[Variant] = [PaddedFloat32(), PackedFloat32(), CUDA[0]]
    for number, variant in enumerate(variants):
        place = tmp_path / str(number)
        place.mkdir()
        (rows,) = made([folders["bert"][3]], variant, place).run(["head.0.rows"], [window([2, 3]), window([2, 9, 3])])
        assert [False, True] == rows.any(axis=1).tolist()


def test_pieces_of_means_cover_each_owned_token_once(window: MakeWindow) -> None:
    """On CUDA: windows of many lengths, at the edges of pieces."""
    windows = [window([2, *range(10, 10 + owned), 3]) for owned in (0, 1, 31, 32, 33, 64, 100)]
    feeds = PackedFloat16().feeds(windows, 0, frozenset({"mean"}))
    assert feeds["owned_tokens"].shape == feeds["owned"].shape
    totals = np.zeros((len(windows), len(feeds["input_ids"])))
    for index, (pieces, real) in enumerate(zip(feeds["owned_pieces"], feeds["real_pieces"], strict=True)):
        for piece in pieces[real.astype(bool)]:
            np.add.at(totals[index], feeds["owned_tokens"][piece], feeds["owned"][piece])
    starts = PackedFloat16().starts(windows, ())
    for index, (each, start) in enumerate(zip(windows, starts, strict=True)):
        expected = np.zeros(totals.shape[1])
        owned = each.owned_tokens(start)
        expected[owned] = 1 / max(1, owned.stop - owned.start)
        np.testing.assert_allclose(totals[index], expected, atol=1e-7)
