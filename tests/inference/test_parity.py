"""Every variant against PyTorch's float32 logits, for every family.

`scripts/test tests/inference/test_parity.py -s` prints the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from inference.conftest import REFERENCE, MakeWindow
from support.layout import rows_of

from enricher.worker.inference.checkpoint.configuration import FAMILIES
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.sessions import open_session
from enricher.worker.inference.graph.variants import Variant
from enricher.worker.inference.run.model import prepare_variant
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
    windows, expected = ragged(family, window)
    logits, labels, scores = answers(family, variant, windows, cache_dir)
    assert all(np.isfinite(each).all() for each in (logits, scores))
    largest, limit = np.abs(expected).max(), LIMITS[variant.precision]
    difference, other = float(np.abs(expected - logits).max() / largest), labels != expected.argmax(-1)
    table[family, variant.name] = Row(difference, int(other.sum()), len(labels))
    assert difference < limit
    gap = np.diff(np.sort(expected, axis=-1)[:, -2:], axis=-1)[:, 0]
    assert (gap[other] < 2 * limit * largest).all()


def test_the_lengths_compared_reach_from_one_token_to_the_most(window: MakeWindow) -> None:
    """Guards the table against reference batches that became even."""
    for family in FAMILIES:
        lengths = [each.length_tokens for each in ragged(family, window)[0]]
        longest = min(Checkpoint.open(REFERENCE / family).max_window_tokens, 130)
        assert (1, longest) == (min(lengths), max(lengths))


def ragged(family: str, window: MakeWindow) -> tuple[list[Window], Float32Array]:
    """The reference's windows, and its logits `[tokens, labels]` for all of their tokens."""
    reference = np.load(REFERENCE / family / "reference.npz")
    rows = zip(reference["input_ids"], reference["lengths"], strict=True)
    real = reference["attention_mask"].astype(bool)
    return [window(ids[:length].tolist()) for ids, length in rows], reference["logits"][real]


def answers(family: str, variant: Variant, windows: list[Window], cache_dir: Path) -> list[Float32Array]:
    """Logits, labels and scores of all tokens of one batch."""
    model = prepare_variant(Checkpoint.open(REFERENCE / family), variant, "cpu", cache_dir=cache_dir)
    session = open_session(model.onnx_path, variant.runtime, threads_per_run=1)
    outputs = session.run(["logits", "labels", "scores"], variant.feeds(windows, pad_id=0))
    return [np.concatenate(rows_of(variant, output, windows)) for output in outputs]
