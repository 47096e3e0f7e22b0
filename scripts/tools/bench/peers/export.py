"""Exports the model for the peers: a folder with an ONNX export of the same weights, and the tokenizer."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

from enricher.worker.inference.checkpoint.folder import Checkpoint
from tools.bench.model.plain import MODEL_FILE, export


def exported(checkpoint: Checkpoint, folder: Path) -> Path:
    """Write the model into `folder`, fused by ONNX Runtime's optimizer for transformers, as its guide recommends."""
    for name in ("config.json", "tokenizer.json"):
        shutil.copyfile(checkpoint.folder / name, folder / name)
    plain = folder / "plain"
    plain.mkdir()
    _optimize(checkpoint, export(checkpoint, plain), folder / MODEL_FILE)
    return folder


def _optimize(checkpoint: Checkpoint, plain: Path, path: Path) -> None:
    from onnxruntime.transformers import optimizer  # noqa: PLC0415  it configures logging

    logging.disable(logging.WARNING)
    # Level 0 leaves the runtime's own passes to the session, which applies them all.
    model = optimizer.optimize_model(
        str(plain), model_type="bert", num_heads=checkpoint.config.heads,
        hidden_size=checkpoint.config.hidden_size, opt_level=0,
    )  # fmt: skip
    logging.disable(logging.NOTSET)
    fused = model.get_fused_operator_statistics()
    assert checkpoint.config.layers == fused["Attention"], f"the optimizer missed attention: {fused}"
    model.save_model_to_file(str(path))
