"""The checkpoint folder of a task whose head comes without its encoder.

The encoder's weights are copied bit for bit, so that the worker runs such a task in one pass with others on that encoder.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from enricher.worker.inference.checkpoint.folder import TOKENIZER_FILES, Checkpoint
from enricher.worker.inference.checkpoint.same_encoder import encoder_digest

HEAD_FILE, CONFIG_FILE, WEIGHTS_FILE = "head.safetensors", "config.json", "model.safetensors"
_NOT_ENCODER = ("classifier.", "bert.pooler.", "cls.", "qa_outputs.")


def join(head: Path, encoder: Checkpoint, out: Path) -> None:
    """Write a checkpoint folder of a head and the encoder that it was trained on."""
    with safe_open(head / HEAD_FILE, framework="numpy") as opened:
        assert opened.metadata()["encoder_digest"] == encoder_digest(encoder), "it was trained on another encoder"
    out.mkdir(parents=True, exist_ok=True)
    stored = load_file(encoder.folder / WEIGHTS_FILE)
    weights = {name: value for name, value in stored.items() if not name.startswith(_NOT_ENCODER)}
    save_file(weights | load_file(head / HEAD_FILE), out / WEIGHTS_FILE, metadata={"format": "pt"})
    for name in TOKENIZER_FILES:
        if (encoder.folder / name).is_file():
            shutil.copyfile(encoder.folder / name, out / name)
    shutil.copyfile(head / CONFIG_FILE, out / CONFIG_FILE)
