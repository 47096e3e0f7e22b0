"""Makes an encoder's folder a sentence embedding: the files that sentence-transformers 5 writes beside the weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal

_MODES = ("cls_token", "mean_tokens", "max_tokens", "lasttoken")


def write_pooling(
    folder: Path, width: int, mode: Literal["cls_token", "mean_tokens"], *, normalised: bool = False
) -> None:
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
