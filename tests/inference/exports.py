"""Folders as exporters leave them, what their graphs answer, and changes to both."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import onnx
from inference.conftest import REFERENCE
from support.head_references import HeadName, write_folder

from enricher.worker.heads import reads_of
from enricher.worker.inference.checkpoint.folder import Checkpoint
from enricher.worker.inference.run.model import PreparedModel, prepare
from enricher.worker.inference.run.selection import variants_for
from enricher.worker.records import Float32Array, Window
from tools.bench.plain_export import export

VARIANTS = [
    variant
    for variant in variants_for("cpu")
    if variant.problem() is None and not variant.quantised and "batch" in variant.token_dimensions
]
"""Those of the padded layout, which take a graph that is ONNX already."""
Change = Callable[[onnx.ModelProto], object]


def write_export(family: str, head: HeadName | None, folder: Path, change: Change | None = None) -> Path:
    """The ONNX file, and the checkpoint's other files without its weights. `head` None: the family's own, for labels."""
    if head is None:
        folder.mkdir(parents=True)
        shutil.copy(REFERENCE / family / "config.json", folder)
        export(Checkpoint.open(REFERENCE / family), folder)
    else:
        export(Checkpoint.open(write_folder(family, head, folder)), folder)
        (folder / "model.safetensors").unlink()
    if change is not None:
        change_export(folder, change)
    return folder


def change_export(folder: Path, change: Change) -> None:
    """Change the graph in its file."""
    model = onnx.load(str(folder / "model.onnx"), load_external_data=False)
    change(model)
    (folder / "model.onnx").write_bytes(model.SerializeToString())


def prepare_export(folder: Path) -> PreparedModel:
    """The export in fp32."""
    return prepare(folder, device="cpu", precision="fp32", cache_dir=folder / "cache")


def rows_of(model: PreparedModel, windows: Sequence[Window]) -> Float32Array:
    """`float32 [windows, values]` of its first head, in one batch."""
    session = model.open_session(threads_per_run=1, concurrency=1)
    reads = reads_of([each.head for each in model.checkpoints])
    (rows,) = session.run(["head.0.rows"], model.variant.feeds(windows, 0, reads))
    found: Float32Array = rows
    return found
