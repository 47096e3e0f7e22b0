"""Makes an encoder's folder a sentence embedding: the files that sentence-transformers 5 writes beside the weights."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from safetensors.numpy import save_file

from tools.heads.checkpoint import WEIGHTS_FILE, weights_of

if TYPE_CHECKING:
    from enricher.worker.inference.checkpoint.folder import Checkpoint

Mode = Literal["cls_token", "mean_tokens"]
_MODES = ("cls_token", "mean_tokens", "max_tokens", "lasttoken")


def write_embedding(encoder: Checkpoint, folder: Path, mode: Mode, *, normalised: bool = False) -> Path:
    """Copy a BERT encoder without its head to `folder`, which must not exist, as a sentence embedding; returns it."""
    shutil.copytree(encoder.folder, folder, ignore=shutil.ignore_patterns(WEIGHTS_FILE))
    save_file(weights_of(encoder), folder / WEIGHTS_FILE, metadata={"format": "pt"})
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
