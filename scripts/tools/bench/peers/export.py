"""Exports the model for the peers: a folder with an ONNX export of the same weights, and the tokenizer."""

from __future__ import annotations

import shutil
from pathlib import Path

from enricher.worker.inference.checkpoint.folder import Checkpoint
from tools.bench.model.plain import MODEL_FILE, write_fused


def export_peer(checkpoint: Checkpoint, folder: Path) -> Path:
    """Write the model into `folder`."""
    for name in ("config.json", "tokenizer.json"):
        shutil.copyfile(checkpoint.folder / name, folder / name)
    write_fused(checkpoint, folder / MODEL_FILE)
    return folder
