"""DeBERTa: the deep checkpoints of support/deberta_references.py, against transformers; and what is refused by name."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inference.conftest import MakeWindow, change_config
from inference.deep_answers import LIMITS, VARIANTS, answers, require_reference
from support.deberta_references import (
    ANSWERED,
    FOLDER,
    LENGTHS_TOKENS,
    P2C_TEXTS,
    Shape,
    write_deep,
)
from support.deep_references import texts_of

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.deberta_weights import DebertaConfig
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.checkpoint.same_encoder import first_difference
from enricher.worker.inference.graph.deberta import DistanceOrder, distance_rows
from enricher.worker.inference.graph.padded import PackedFloat32, PaddedFloat32
from enricher.worker.inference.graph.variants import Variant
from enricher.worker.inference.run.model import open_model, prepare_variant
from enricher.worker.records import Float32Array

TEXTS = texts_of(LENGTHS_TOKENS)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
@pytest.mark.parametrize("shape", ANSWERED)
def test_every_head_says_what_transformers_says_up_to_512_tokens(
    shape: Shape, variant: Variant, window: MakeWindow, tmp_path: Path, cache_dir: Path
) -> None:
    """Shared and own projections, buckets or none, by query and by key; labels, classes, a number, vectors, in one graph."""
    texts, answered = TEXTS[: P2C_TEXTS if shape == "p2c" else None], np.load(FOLDER / "deep.npz")
    folders: dict[str, Path] = {head: write_deep(shape, head, tmp_path / head) for head in ANSWERED[shape]}
    expected: dict[str, Float32Array] = {head: answered[f"{shape} {head}"] for head in folders}
    require_reference(folders, expected, variant, window, cache_dir, texts)


@pytest.mark.parametrize("variant", [PaddedFloat32(), PackedFloat32()], ids=lambda variant: variant.name)
@pytest.mark.parametrize(
    "change",
    [{"max_relative_positions": 480}, {"layer_norm_eps": 1e-2}, {"pos_att_type": "p2c"}, {"pos_att_type": "c2p"}],
    ids=str,
)
def test_the_comparison_catches_a_wrong_graph(
    change: dict[str, Any], variant: Variant, window: MakeWindow, tmp_path: Path, cache_dir: Path
) -> None:
    """Buckets that begin a little elsewhere, or one term less, are far outside the tolerance."""
    folder = write_deep("v3", "labels", tmp_path / "model")
    change_config(folder, **change)
    expected = np.load(FOLDER / "deep.npz")["v3 labels"][-LENGTHS_TOKENS[-1] :]
    (found,) = answers(folder, variant, window, cache_dir, "logits", TEXTS[-1:])
    assert np.abs(found - expected).max() > 10 * LIMITS["fp32"]


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
    config = DebertaConfig.model_validate(json.loads((FOLDER / "config.json").read_bytes()) | given)
    order = DistanceOrder.of(config)
    assert len(order.rows) == len(set(order.rows.tolist())) <= 2 * config.span
    for tokens in (1, 2, positions // 2, positions):
        distances = np.arange(1 - tokens, tokens)
        columns = order.columns[distances]
        assert columns.max() < 2 * tokens
        np.testing.assert_array_equal(distance_rows(config, distances), order.rows[columns])


def test_heads_share_an_encoder_whatever_they_say_of_the_pooler(tmp_path: Path) -> None:
    """The pooler belongs to the head. Other buckets are another encoder."""
    first, second = (Checkpoint.open(write_deep("v3", head, tmp_path / head)) for head in ("labels", "classes"))
    change_config(second.folder, pooler_hidden_size=None)
    assert first_difference(first, Checkpoint.open(second.folder)) is None
    change_config(second.folder, max_relative_positions=400)
    assert "config.json differs" == first_difference(first, Checkpoint.open(second.folder))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"conv_kernel_size": 3},
            "conv_kernel_size 3, a convolution (its ONNX export runs: name that file)",
        ),
        ({"hidden_act": "gelu_new"}, "activation 'gelu_new' (only 'gelu' is built)"),
        ({"pooler_hidden_act": "tanh"}, "pooler_hidden_act 'tanh' (only 'gelu' is built)"),
        ({"relative_attention": False}, "relative_attention false"),
        ({"pos_att_type": "p2c|p2p"}, "pos_att_type p2p (only c2p and p2c are built)"),
        ({"pos_att_type": None}, "pos_att_type without a term"),
        ({"pos_att_type": 7}, "pos_att_type"),
        ({"norm_rel_ebd": "batch_norm"}, "norm_rel_ebd 'batch_norm'"),
        ({"attention_head_size": 32}, "attention heads of size 32 (only 64, the width over the heads)"),
        ({"embedding_size": 64}, "embeddings or a pooler of another width than 128"),
        ({"pooler_hidden_size": 64}, "embeddings or a pooler of another width than 128"),
        ({"num_attention_heads": 3}, "3 heads over width 128"),
        ({"position_buckets": 1}, "position_buckets 1 for 512 relative positions"),
        ({"max_relative_positions": 129}, "position_buckets 256 for 129 relative positions"),
        ({"position_buckets": 10**12}, "1000000000000 positions or distances (at most 131072)"),
        ({"max_position_embeddings": 10**9}, "1000000000 positions or distances"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"num_hidden_layers": 3}, "A deberta-v2 of 3 layers with this head has no place for them"),
        ({"share_att_key": False}, "no weight 'deberta.encoder.layer.0.attention.self.pos_key_proj.weight' among"),
        ({"norm_rel_ebd": "none"}, "2 of 72 weights would be ignored"),
        ({"position_biased_input": True}, "no weight 'deberta.embeddings.position_embeddings.weight' among"),
        ({"type_vocab_size": 2}, "no weight 'deberta.embeddings.token_type_embeddings.weight' among"),
        ({"position_buckets": 128}, "rel_embeddings.weight is (512, 128), not (256, 128) as config.json says"),
        ({"intermediate_size": 100}, "intermediate.dense.weight is (96, 128), not (100, 128) as config.json says"),
        ({"model_type": "deberta"}, "(deberta) is not supported"),
    ],
    ids=str,
)
def test_a_configuration_that_is_not_built_is_refused_by_name(
    change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    """Within seconds, and nothing is left in the cache."""
    folder = write_deep("v3", "labels", tmp_path / "model")
    change_config(folder, **change)
    began_s = time.monotonic()
    with pytest.raises(ModelError) as caught:
        prepare_variant(open_model(folder), PaddedFloat32(), "cpu", cache_dir=tmp_path / "cache")
    assert said in str(caught.value)
    assert time.monotonic() - began_s < 5.0
    assert [] == [*(tmp_path / "cache").glob("*")]
