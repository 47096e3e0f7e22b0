"""ModernBERT: the deep checkpoint of support/modernbert_references.py, against transformers; and what is refused by name."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inference.conftest import MakeWindow, change_config
from inference.deep_answers import LIMITS, VARIANTS, answers, require_reference
from support.deep_references import texts_of
from support.modernbert_references import FOLDER, HEADS, LENGTHS_TOKENS, DeepHead, write_deep

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.checkpoint.same_encoder import first_difference
from enricher.worker.inference.graph.padded import PackedFloat32, PaddedFloat32
from enricher.worker.inference.graph.variants import Variant
from enricher.worker.inference.run.model import open_model

TEXTS = texts_of(LENGTHS_TOKENS)


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_every_head_says_what_transformers_says_up_to_2048_tokens(
    variant: Variant, window: MakeWindow, tmp_path: Path, cache_dir: Path
) -> None:
    """Labels, classes over the first token and over the mean of all tokens, a number, and vectors, in one graph."""
    heads: tuple[DeepHead, ...] = ("labels", *HEADS)
    folders: dict[str, Path] = {head: write_deep(head, tmp_path / head) for head in heads}
    require_reference(folders, np.load(FOLDER / "deep.npz"), variant, window, cache_dir, TEXTS)


@pytest.mark.parametrize("variant", [PaddedFloat32(), PackedFloat32()], ids=lambda variant: variant.name)
@pytest.mark.parametrize(
    "change",
    [
        {"local_attention": 126},
        {"local_attention": 130},
        {"global_attn_every_n_layers": 2},
        {"global_rope_theta": 150000.0},
        {"local_rope_theta": 160000.0},
        {"norm_eps": 1e-3},
    ],
    ids=str,
)
def test_the_comparison_catches_a_wrong_graph(
    change: dict[str, Any], variant: Variant, window: MakeWindow, tmp_path: Path, cache_dir: Path
) -> None:
    """One token of reach more or less, other layers, other positions: all are far outside the tolerance."""
    folder, texts = write_deep("labels", tmp_path / "model"), 40
    change_config(folder, **change)
    expected = np.load(FOLDER / "deep.npz")["labels"][: sum(LENGTHS_TOKENS[:texts])]
    found = np.concatenate(answers(folder, variant, window, cache_dir, "logits", TEXTS[:texts]))
    assert np.abs(found - expected).max() > 10 * LIMITS["fp32"]


def test_the_newer_form_of_a_configuration_is_the_same_model(
    window: MakeWindow, tmp_path: Path, cache_dir: Path
) -> None:
    """Lists of layers and of rotary positions, which win over the older keys as they do in transformers."""
    folder = write_deep("labels", tmp_path / "model")
    before = answers(folder, PaddedFloat32(), window, cache_dir, "logits", TEXTS[:40])
    kinds = ["full_attention", "sliding_attention", "sliding_attention"] * 2
    rotary = {
        "full_attention": {"rope_type": "default", "rope_theta": 160000.0},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
    }
    older = {"global_attn_every_n_layers": 2, "local_rope_theta": 7}
    change_config(folder, layer_types=kinds, rope_parameters=rotary, **older)
    after = answers(folder, PaddedFloat32(), window, cache_dir, "logits", TEXTS[:40])
    for ours, theirs in zip(after, before, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_heads_that_pool_in_different_ways_share_an_encoder(tmp_path: Path) -> None:
    """The pooling belongs to the head. Another reach of local layers is another encoder."""
    first, second = (Checkpoint.open(write_deep(head, tmp_path / head)) for head in ("cls classes", "mean classes"))
    assert first_difference(first, second) is None
    assert ("first", "whole") == (first.head.reads, second.head.reads)
    change_config(second.folder, local_attention=64)
    assert "config.json differs" == first_difference(first, Checkpoint.open(second.folder))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"norm_bias": True}, "norm_bias true (only models without it are built)"),
        ({"attention_bias": True}, "attention_bias true"),
        ({"mlp_bias": True}, "mlp_bias true"),
        ({"classifier_bias": True}, "classifier_bias true"),
        ({"hidden_activation": "silu"}, "activation 'silu' (only 'gelu' is built)"),
        ({"classifier_activation": "relu"}, "classifier_activation 'relu'"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "scaled rotary positions"),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn", "rope_theta": 1e4}}}, "scaled rotary positions"),
        ({"layer_types": ["full_attention"] * 5}, "layer_types for 5 layers, and num_hidden_layers 6"),
        ({"layer_types": ["linear_attention"] * 6}, "layer_types"),
        ({"global_attn_every_n_layers": 0}, "global_attn_every_n_layers"),
        ({"num_attention_heads": 3}, "3 heads over width 128"),
        ({"num_attention_heads": 128}, "attention heads of size 1"),
        ({"max_position_embeddings": 10**9}, "1000000000 positions (at most 131072)"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers"),
        ({"num_hidden_layers": 5}, "A modernbert of 5 layers with this head has no place for them"),
        ({"classifier_pooling": "max"}, "classifier_pooling"),
    ],
    ids=str,
)
def test_a_configuration_that_is_not_built_is_refused_by_name(
    change: dict[str, Any], said: str, tmp_path: Path
) -> None:
    """When the folder is opened, before any weight is read."""
    folder = write_deep("labels", tmp_path / "model")
    change_config(folder, **change)
    began_s = time.monotonic()
    with pytest.raises(ModelError) as caught:
        open_model(folder)
    assert said in str(caught.value)
    assert time.monotonic() - began_s < 5.0
