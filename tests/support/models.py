"""newswire-minilm: the model with a WordPiece tokenizer, with int8 and with passing reports of every reduced precision.

The references in tests/data/reference/ are its answers. It does not go into the wheel.
"""

from __future__ import annotations

from enricher.worker.inference.checkpoint.folder import Checkpoint
from tools import MINILM

MINILM_FOLDER = MINILM


def open_minilm() -> Checkpoint:
    """Its checkpoint."""
    return Checkpoint.open(MINILM_FOLDER)
