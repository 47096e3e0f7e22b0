"""What holds for every encoder beside BERT's, by its small checkpoint: long windows, and the precisions without it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from inference.conftest import REFERENCE, MakeWindow
from inference.deep_answers import VARIANTS
from support.layout import rows_of

from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.sessions import open_session
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
