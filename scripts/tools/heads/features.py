"""First-token states of a frozen encoder, through the worker's own tokenizer, windows, graph and engine."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from enricher.worker.build.loaded_model import Model, load_model, window_cutter
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.run.model import open_model
from enricher.worker.records import (
    Article,
    Batch,
    Float32Array,
    Window,
    WindowRows,
)
from enricher.worker.settings import Settings, load_settings
from tools.changed_settings import change
from tools.cutting import windows_of
from tools.heads.pooling import write_embedding

_BATCH_WINDOWS = 4


def first_tokens_of(texts: Sequence[str], encoder: Checkpoint) -> tuple[Float32Array, Sequence[int]]:
    """A row for each window of each text: the last hidden state of its first token, `float32 [windows, width]`, in fp32.

    Also the number of the text that each window belongs to. A text longer than a window has several.
    """
    with tempfile.TemporaryDirectory(prefix="train-head-") as folder:
        # A classification head reads the state of the first token.
        pooled = write_embedding(encoder, Path(folder) / "encoder", "cls_token")
        settings = _settings(pooled)
        model = load_model(settings, [open_model(pooled)])
        articles = [Article(str(number), "", text, {}) for number, text in enumerate(texts)]
        by_text = windows_of(model.tokenizer, window_cutter(settings, model), articles)
        windows = [window for own in by_text for window in own]
        owners = [number for number, own in enumerate(by_text) for _ in own]
        rows: list[Float32Array | None] = [None] * len(windows)
        order = sorted(range(len(windows)), key=lambda index: windows[index].length_tokens)
        for first in range(0, len(order), _BATCH_WINDOWS):
            chosen = order[first : first + _BATCH_WINDOWS]
            _run(model, windows, chosen, rows)
    found = [row for row in rows if row is not None]
    assert len(found) == len(rows), "every window has a row"
    return np.stack(found), owners


def _run(model: Model, windows: Sequence[Window], chosen: Sequence[int], rows: list[Float32Array | None]) -> None:
    numbers = {id(windows[index]): index for index in chosen}
    done = model.engine.run(Batch(tuple(windows[index] for index in chosen)))
    for output in done.runs:
        [head] = output.heads
        assert isinstance(head, WindowRows)
        for window, row in zip(output.windows, head.rows, strict=True):
            rows[numbers[id(window)]] = row


def _settings(folder: Path) -> Settings:
    chosen = {"source": str(folder), "precision": "fp32", "cache_dir": folder.parent / "cache"}
    return change(load_settings(), model=chosen)
