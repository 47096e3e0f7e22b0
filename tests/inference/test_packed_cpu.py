"""The float32 variant that pads in attention only: its index arrays, and that windows stay apart."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.device.sessions import open_session
from enricher.worker.inference.graph.padded import PackedFloat32
from enricher.worker.inference.run.model import prepare_variant

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from enricher.worker.records import Window

    MakeWindow = Callable[[Sequence[int]], Window]

REFERENCE = Path(__file__).parent.parent / "data" / "reference"


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
