"""Encoders beside BERT's, DeBERTa and ModernBERT, against transformers, in windows of every length; and what is refused.

Checkpoints are those of support/deep_references.py, and the small ones in tests/data/reference.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inference.conftest import REFERENCE, MakeWindow, change_config, parts_of
from safetensors.numpy import load_file, save_file
from support.deep_references import HEADS, LENGTHS_TOKENS, Shape, answers_of, texts_of, write_deep
from support.layout import rows_of

from enricher.errors import ModelError
from enricher.worker.heads import reads_of
from enricher.worker.inference.checkpoint.deberta_weights import DebertaConfig
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.checkpoint.same_encoder import first_difference
from enricher.worker.inference.device.sessions import open_session
from enricher.worker.inference.graph.deberta import DistanceOrder, distance_rows
from enricher.worker.inference.graph.padded import PackedFloat32, PaddedFloat16, PaddedFloat32
from enricher.worker.inference.graph.variants import Variant
from enricher.worker.inference.run.model import open_model, prepare_variant
from enricher.worker.inference.run.selection import problem_of, variants_for
from enricher.worker.records import Float32Array, Int32Array

FAMILIES = ("deberta-v2", "modernbert")
VARIANTS = [
    *(variant for variant in variants_for("cpu") if variant.problem() is None and not variant.quantised),
    PaddedFloat16(runtime="cpu"),
]
"""The last is the graph of a GPU: on a CPU its weights are in float16, and its numbers in float32."""
LIMITS = {"fp32": 1e-4, "bf16": 0.3, "fp16": 2e-2}
"""Largest difference of a logit or of a vector's number allowed. Logits reach 5; bf16 has 8 bits, and weights are random."""
BATCHES = (1, 7, 16, 16, 16, 7, 1)
"""Sizes of batches, the last of which repeats: short texts beside short ones, then beside long ones; the longest alone."""


def answers(
    folders: Mapping[str, Path], variant: Variant, window: MakeWindow, cache_dir: Path, texts: Sequence[Int32Array]
) -> dict[str, list[Float32Array]]:
    """What each head in its folder says of each text, in one graph over one encoder; the head `labels` comes first."""
    checkpoint, *others = [open_model(folder) for folder in folders.values()]
    path = prepare_variant(checkpoint, variant, "cpu", cache_dir=cache_dir, others=others).onnx_path
    session = open_session(path, variant.runtime, threads_per_run=1)
    reads = reads_of([each.head for each in (checkpoint, *others)])
    outputs = ["head.0.logits" if others else "logits", *(f"head.{index}.rows" for index in range(1, len(folders)))]
    found: dict[str, list[Float32Array]] = {head: [] for head in folders}
    for windows in parts_of([window(ids.tolist()) for ids in texts], BATCHES):
        of_all = session.run(outputs, variant.feeds(windows, 0, reads))
        for head, values in zip(folders, of_all, strict=True):
            found[head] += rows_of(variant, values, windows) if head == "labels" else [*values]
    return found


@pytest.mark.parametrize(
    ("shape", "variant"),
    [
        (shape, each)
        for shape in HEADS
        for each in VARIANTS
        if each.precision == "fp32" or shape in {"v3", "modernbert"}
    ],
    ids=lambda each: getattr(each, "name", each),
)
def test_every_head_says_what_transformers_says(
    shape: Shape, variant: Variant, window: MakeWindow, tmp_path: Path, cache_dir: Path
) -> None:
    """Shared and own projections, buckets or none, by query and by key; local and global layers, up to 2,048 tokens."""
    texts, expected = texts_of(shape), answers_of(shape)
    folders = {head: write_deep(shape, head, tmp_path / head) for head in HEADS[shape]}
    for head, ours in answers(folders, variant, window, cache_dir, texts).items():
        if head == "labels":
            of_tokens = np.concatenate([values[: len(ids)] for values, ids in zip(ours, texts, strict=True)])
            difference = np.abs(of_tokens - expected[head]).max()
        else:
            # Windows of one or two tokens own none, of which a mean could be made.
            rows = [number for number, ids in enumerate(texts) if len(ids) > 2 or head != "mean vector"]
            difference = np.abs(np.stack(ours) - expected[head])[rows].max()
        assert difference < LIMITS[variant.precision], head


@pytest.mark.parametrize("variant", [PaddedFloat32(), PackedFloat32()], ids=lambda variant: variant.name)
@pytest.mark.parametrize(
    ("shape", "change"),
    [
        ("v3", {"max_relative_positions": 480}),
        ("v3", {"layer_norm_eps": 1e-2}),
        ("v3", {"pos_att_type": "p2c"}),
        ("v3", {"pos_att_type": "c2p"}),
        ("modernbert", {"local_attention": 126}),
        ("modernbert", {"local_attention": 130}),
        ("modernbert", {"global_attn_every_n_layers": 2}),
        ("modernbert", {"global_rope_theta": 150000.0}),
        ("modernbert", {"local_rope_theta": 160000.0}),
        ("modernbert", {"norm_eps": 1e-3}),
    ],
    ids=str,
)
def test_the_comparison_catches_a_wrong_graph(
    shape: Shape, change: dict[str, Any], variant: Variant, window: MakeWindow, tmp_path: Path, cache_dir: Path
) -> None:
    """Buckets elsewhere, one term less, one token of reach more or less: all are far outside the tolerance."""
    folder, last = write_deep(shape, "labels", tmp_path / "model"), 64 if shape == "v3" else 61
    change_config(folder, **change)
    before = sum(LENGTHS_TOKENS[shape][: last - 1])
    expected = answers_of(shape)["labels"][before : before + LENGTHS_TOKENS[shape][last - 1]]
    [found] = answers({"labels": folder}, variant, window, cache_dir, texts_of(shape)[last - 1 : last])["labels"]
    assert np.abs(found[: len(expected)] - expected).max() > 10 * LIMITS["fp32"]


@pytest.mark.parametrize(
    ("positions", "relative", "buckets"),
    [(512, -1, 256), (512, 300, -1), (192, 128, 32), (2048, 512, 256), (100, -1, 256), (128, 70, 66), (512, -1, 7)],
)
def test_distances_have_their_rows_in_an_order_that_suits_every_length(
    positions: int, relative: int, buckets: int
) -> None:
    """The first 2n columns have every distance of a window of n tokens, and each column is the row of its distance."""
    given = {
        "max_position_embeddings": positions,
        "max_relative_positions": relative,
        "position_buckets": buckets,
    }
    stored = json.loads((REFERENCE / "deberta-v2" / "config.json").read_bytes())
    config = DebertaConfig.model_validate(stored | given)
    order = DistanceOrder.of(config)
    assert len(order.rows) == len(set(order.rows.tolist())) <= 2 * config.span
    for tokens in (1, 2, positions // 2, positions):
        distances = np.arange(1 - tokens, tokens)
        columns = order.columns[distances]
        assert columns.max() < 2 * tokens
        np.testing.assert_array_equal(distance_rows(config, distances), order.rows[columns])


def test_the_newer_form_of_a_configuration_is_the_same_model(
    window: MakeWindow, tmp_path: Path, cache_dir: Path
) -> None:
    """Lists of layers and of rotary positions, which win over the older keys as they do in transformers."""
    folder, texts = write_deep("modernbert", "labels", tmp_path / "model"), texts_of("modernbert")[40:44]
    before = answers({"labels": folder}, PaddedFloat32(), window, cache_dir, texts)["labels"]
    kinds = ["full_attention", "sliding_attention", "sliding_attention"] * 2
    rotary = {
        "full_attention": {"rope_type": "default", "rope_theta": 160000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    }
    older = {"global_attn_every_n_layers": 2, "local_rope_theta": 7}
    change_config(folder, layer_types=kinds, rope_parameters=rotary, **older)
    after = answers({"labels": folder}, PaddedFloat32(), window, cache_dir, texts)["labels"]
    for ours, theirs in zip(after, before, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize(
    ("shape", "heads", "of_a_head", "of_the_encoder"),
    [
        ("v3", ("labels", "classes"), {"pooler_hidden_size": None}, {"max_relative_positions": 400}),
        ("modernbert", ("cls classes", "mean classes"), {}, {"local_attention": 64}),
    ],
)
def test_heads_share_an_encoder_whatever_they_say_of_pooling(
    shape: Shape, heads: tuple[str, str], of_a_head: dict[str, None], of_the_encoder: dict[str, int], tmp_path: Path
) -> None:
    """The pooling belongs to the head. Other buckets, or another reach of local layers, are another encoder."""
    first, second = (Checkpoint.open(write_deep(shape, head, tmp_path / head)) for head in heads)
    change_config(second.folder, **of_a_head)
    assert first_difference(first, Checkpoint.open(second.folder)) is None
    change_config(second.folder, **of_the_encoder)
    assert "config.json differs" == first_difference(first, Checkpoint.open(second.folder))


@pytest.mark.parametrize(
    ("shape", "change", "said"),
    [
        ("v3", {"conv_kernel_size": 3}, "conv_kernel_size 3, a convolution (its ONNX export runs: name that file)"),
        ("v3", {"hidden_act": "gelu_new"}, "activation 'gelu_new' (only 'gelu' is built)"),
        ("v3", {"pooler_hidden_act": "tanh"}, "pooler_hidden_act 'tanh' (only 'gelu' is built)"),
        ("v3", {"relative_attention": False}, "relative_attention false"),
        ("v3", {"pos_att_type": "p2c|p2p"}, "pos_att_type p2p (only c2p and p2c are built)"),
        ("v3", {"pos_att_type": None}, "pos_att_type without a term"),
        ("v3", {"pos_att_type": 7}, "pos_att_type"),
        ("v3", {"norm_rel_ebd": "batch_norm"}, "norm_rel_ebd 'batch_norm'"),
        ("v3", {"attention_head_size": 32}, "attention heads of size 32 (only 64, the width over the heads)"),
        ("v3", {"embedding_size": 64}, "embeddings or a pooler of another width than 128"),
        ("v3", {"pooler_hidden_size": 64}, "embeddings or a pooler of another width than 128"),
        ("v3", {"num_attention_heads": 3}, "3 heads over width 128"),
        ("v3", {"position_buckets": 1}, "position_buckets 1 for 512 relative positions"),
        ("v3", {"max_relative_positions": 129}, "position_buckets 256 for 129 relative positions"),
        ("v3", {"position_buckets": 10**12}, "1000000000000 positions or distances (at most 131072)"),
        ("v3", {"max_position_embeddings": 10**9}, "1000000000 positions or distances"),
        ("v3", {"num_hidden_layers": 10**9}, "num_hidden_layers"),
        (
            "v3",
            {"share_att_key": False},
            "no weight 'deberta.encoder.layer.0.attention.self.pos_key_proj.weight' among",
        ),
        ("v3", {"norm_rel_ebd": "none"}, "2 of 72 weights would be ignored"),
        ("v3", {"position_biased_input": True}, "no weight 'deberta.embeddings.position_embeddings.weight' among"),
        ("v3", {"type_vocab_size": 2}, "no weight 'deberta.embeddings.token_type_embeddings.weight' among"),
        ("v3", {"position_buckets": 128}, "rel_embeddings.weight is (512, 128), not (256, 128) as config.json says"),
        (
            "v3",
            {"intermediate_size": 100},
            "intermediate.dense.weight is (96, 128), not (100, 128) as config.json says",
        ),
        ("v3", {"vocab_size": 300}, "word_embeddings.weight is (260, 128), not (300, 128)"),
        ("modernbert", {"norm_bias": True}, "norm_bias true (only models without it are built)"),
        ("modernbert", {"attention_bias": True}, "attention_bias true"),
        ("modernbert", {"mlp_bias": True}, "mlp_bias true"),
        ("modernbert", {"classifier_bias": True}, "classifier_bias true"),
        ("modernbert", {"hidden_activation": "silu"}, "activation 'silu' (only 'gelu' is built)"),
        ("modernbert", {"classifier_activation": "relu"}, "classifier_activation 'relu'"),
        ("modernbert", {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "scaled rotary positions"),
        (
            "modernbert",
            {"rope_parameters": {"full_attention": {"rope_type": "yarn", "rope_theta": 1e4}}},
            "scaled rotary positions",
        ),
        ("modernbert", {"layer_types": ["full_attention"] * 5}, "layer_types for 5 layers, and num_hidden_layers 6"),
        ("modernbert", {"layer_types": ["linear_attention"] * 6}, "layer_types"),
        ("modernbert", {"global_attn_every_n_layers": 0}, "global_attn_every_n_layers"),
        ("modernbert", {"num_attention_heads": 128}, "attention heads of size 1"),
        ("modernbert", {"max_position_embeddings": 10**9}, "1000000000 positions (at most 131072)"),
        ("modernbert", {"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ("modernbert", {"intermediate_size": 100}, "mlp.Wi.weight is (192, 128), not (200, 128) as config.json says"),
        ("modernbert", {"classifier_pooling": "max"}, "classifier_pooling"),
    ],
    ids=str,
)
def test_a_configuration_that_is_not_built_is_refused_by_name(
    shape: Shape, change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    """Nothing is left in the cache."""
    folder = write_deep(shape, "labels", tmp_path / "model")
    change_config(folder, **change)
    with pytest.raises(ModelError) as caught:
        prepare_variant(open_model(folder), PaddedFloat32(), "cpu", cache_dir=tmp_path / "cache")
    assert said in str(caught.value)
    assert [] == [*(tmp_path / "cache").glob("*")]


@pytest.mark.parametrize("family", FAMILIES)
def test_windows_near_the_last_position_are_not_cut_short(family: str, window: MakeWindow, cache_dir: Path) -> None:
    """Each takes 192 tokens; variants that round lengths up need rows of distances or positions behind the last."""
    checkpoint = Checkpoint.open(REFERENCE / family)
    assert 192 == checkpoint.max_window_tokens
    ids = (5 + np.random.default_rng(1).random(191) * 250).astype(np.int32)
    found = []
    for variant in (each for each in VARIANTS if each.precision == "fp32"):
        [logits] = answers({"labels": checkpoint.folder}, variant, window, cache_dir, [ids])["labels"]
        found.append(logits[:191])
    for each in found[1:]:
        np.testing.assert_allclose(each, found[0], atol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
def test_precisions_that_are_not_built_say_why(family: str) -> None:
    """Packed attention on a GPU has no distances or rotary positions."""
    checkpoint = Checkpoint.open(REFERENCE / family)
    reasons = {
        variant.name: variant.why_unsuited(checkpoint.config)
        for variant in (*variants_for("cpu"), *variants_for("cuda"))
    }
    refused = {name for name, reason in reasons.items() if reason is not None}
    assert {"packed-fp16", "packed-cuda-fp32"} == refused
    assert all(family in str(reasons[name]) for name in refused)
    assert all(problem_of(checkpoint, variant) is None for variant in VARIANTS)


def test_weights_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    """By the name of the first, when the graph is built."""
    folder = Path(shutil.copytree(REFERENCE / "modernbert", tmp_path / "model"))
    weights = load_file(folder / "model.safetensors")
    save_file({**weights, "classifier.bias": np.full(7, np.nan, np.float32)}, folder / "model.safetensors")
    with pytest.raises(ModelError, match=r"classifier\.bias has NaN"):
        prepare_variant(Checkpoint.open(folder), PaddedFloat32(), "cpu", cache_dir=tmp_path / "cache")
