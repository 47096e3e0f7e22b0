"""What holds for every encoder beside BERT's, by its small checkpoint: long windows, and the precisions without it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from inference.conftest import REFERENCE, MakeWindow, change_config
from inference.deep_answers import VARIANTS
from safetensors.numpy import load_file, save_file
from support.layout import rows_of

from enricher.errors import ModelError
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.sessions import open_session
from enricher.worker.inference.graph.padded import PaddedFloat32
from enricher.worker.inference.run.model import prepare_variant
from enricher.worker.inference.run.selection import problem_of, variants_for

FAMILIES = ("deberta-v2", "modernbert")


@pytest.mark.parametrize("family", FAMILIES)
def test_windows_near_the_last_position_are_not_cut_short(family: str, window: MakeWindow, cache_dir: Path) -> None:
    """Each takes 192 tokens; variants that round lengths up need rows of distances or positions behind the last."""
    checkpoint = Checkpoint.open(REFERENCE / family)
    assert 192 == checkpoint.max_window_tokens
    ids = (5 + np.random.default_rng(1).random(191) * 250).astype(np.int32).tolist()
    found = []
    for variant in (each for each in VARIANTS if each.precision == "fp32"):
        path = prepare_variant(checkpoint, variant, "cpu", cache_dir=cache_dir).onnx_path
        session = open_session(path, variant.runtime, threads_per_run=1)
        (logits,) = session.run(["logits"], variant.feeds([window(ids)], 0))
        found.append(rows_of(variant, logits, [window(ids)])[0][:191])
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


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"intermediate_size": 40}, r"(Wi|intermediate\.dense)\.weight is .* as config\.json says"),
        ({"vocab_size": 300}, r"embeddings\.weight is \(260, 48\), not \(300, 48\)"),
        ({"num_hidden_layers": 9, "layer_types": ["full_attention"] * 9}, "no weight '.*layer"),
        ({"num_hidden_layers": 2, "layer_types": ["full_attention"] * 2}, r"weights would be ignored.*layers?\.2"),
    ],
)
def test_a_config_that_lies_about_layers_or_widths_is_refused(
    family: str, values: dict[str, object], said: str, tmp_path: Path, cache_dir: Path
) -> None:
    """By the name of the first weight that does not fit."""
    folder = tmp_path / family
    shutil.copytree(REFERENCE / family, folder)
    change_config(folder, **values)
    with pytest.raises(ModelError, match=said):
        prepare_variant(Checkpoint.open(folder), PaddedFloat32(), "cpu", cache_dir=cache_dir)


@pytest.mark.parametrize("family", FAMILIES)
def test_weights_that_are_missing_or_no_numbers_are_refused(family: str, tmp_path: Path, cache_dir: Path) -> None:
    """A head for labels is part of the folder too: when it is opened, or when the graph is built."""
    folder = tmp_path / family
    shutil.copytree(REFERENCE / family, folder)
    weights = load_file(folder / "model.safetensors")
    save_file({**weights, "classifier.bias": np.full(7, np.nan, np.float32)}, folder / "model.safetensors")
    with pytest.raises(ModelError, match=r"classifier\.bias has NaN"):
        prepare_variant(Checkpoint.open(folder), PaddedFloat32(), "cpu", cache_dir=cache_dir)
    del weights["classifier.bias"]
    save_file(weights, folder / "model.safetensors")
    with pytest.raises(ModelError, match=r"no weight 'classifier\.bias'"):
        Checkpoint.open(folder)
