"""Checkpoint folders of tasks on one encoder: a head joined with it, and a sentence embedding.

The encoder's weights are copied bit for bit, so that the worker runs such a task in one pass with others on that encoder.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any, Literal

from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from enricher.worker.inference.checkpoint.folder import TOKENIZER_FILES, Checkpoint
from enricher.worker.inference.checkpoint.same_encoder import encoder_digest

HEAD_FILE, CONFIG_FILE, WEIGHTS_FILE = "head.safetensors", "config.json", "model.safetensors"
_NOT_ENCODER = ("classifier.", "bert.pooler.", "cls.", "qa_outputs.")
Mode = Literal["cls_token", "mean_tokens"]
_MODES = ("cls_token", "mean_tokens", "max_tokens", "lasttoken")


def join(head: Path, encoder: Checkpoint, out: Path) -> None:
    """Write a checkpoint folder of a head and the encoder that it was trained on."""
    with safe_open(head / HEAD_FILE, framework="numpy") as opened:
        assert opened.metadata()["encoder_digest"] == encoder_digest(encoder), "it was trained on another encoder"
    out.mkdir(parents=True, exist_ok=True)
    save_file(_weights_of(encoder) | load_file(head / HEAD_FILE), out / WEIGHTS_FILE, metadata={"format": "pt"})
    for name in TOKENIZER_FILES:
        if (encoder.folder / name).is_file():
            shutil.copyfile(encoder.folder / name, out / name)
    shutil.copyfile(head / CONFIG_FILE, out / CONFIG_FILE)


def write_embedding(encoder: Checkpoint, folder: Path, mode: Mode, *, normalised: bool = False) -> Path:
    """Copy a BERT encoder without its head to `folder`, which must not exist, as a sentence embedding; returns it."""
    shutil.copytree(encoder.folder, folder, ignore=shutil.ignore_patterns(WEIGHTS_FILE))
    save_file(_weights_of(encoder), folder / WEIGHTS_FILE, metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_bytes())
    (folder / "config.json").write_text(json.dumps(config | {"architectures": ["BertModel"]}))
    write_pooling(folder, encoder.config.hidden_size, mode, normalised=normalised)
    return folder


def write_pooling(folder: Path, width: int, mode: Mode, *, normalised: bool = False) -> None:
    """Write `modules.json` and `1_Pooling/config.json`. `width`: numbers of a vector."""
    (folder / "1_Pooling").mkdir()
    modes = {f"pooling_mode_{each}": each == mode for each in _MODES}
    pooling = {"word_embedding_dimension": width, **modes, "include_prompt": True}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(pooling, indent=1))
    kinds = {"Transformer": "", "Pooling": "1_Pooling", **({"Normalize": "2_Normalize"} if normalised else {})}
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for number, (kind, path) in enumerate(kinds.items())
    ]
    (folder / "modules.json").write_text(json.dumps(modules, indent=1))


def _weights_of(encoder: Checkpoint) -> dict[str, Any]:
    """The weights of a checkpoint below its head."""
    stored = load_file(encoder.folder / WEIGHTS_FILE)
    return {name: value for name, value in stored.items() if not name.startswith(_NOT_ENCODER)}
